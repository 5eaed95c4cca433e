"""Checks of a release: files have the tag's version, and messages make a changelog.

``python -m tools.release v1.2.3 dist/*`` compares what was built with the tag;
``python -m tools.release --message FILE`` checks a commit message, for pre-commit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

KINDS = ("feat", "fix", "perf", "refactor", "docs", "test", "bench", "build", "ci", "chore")
_MESSAGE = re.compile(rf"({'|'.join(KINDS)})(\([\w-]+\))?!?: \S")
# Made by git itself.
_MADE = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["--message", path]:
            problems = message_problems(Path(path).read_text(encoding="utf-8"))
        case [tag, *paths] if not tag.startswith("-"):
            problems = version_problems(tag, [Path(path).name for path in paths])
        case _:
            problems = [__doc__ or ""]
    print("\n".join(problems), end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


def version_problems(tag: str, names: Sequence[str]) -> list[str]:
    """Return the mistakes in the files of a release; empty if they match the tag."""
    version = tag.removeprefix("v")
    wanted = {
        f"zae_limiter-{version}.tar.gz",
        f"zae_limiter-{version}-py3-none-any.whl",
    }
    if set(names) == wanted:
        return []
    expected, built = ", ".join(sorted(wanted)), ", ".join(names) or "nothing"
    reason = "is it lower than the version of src/zae_limiter/_version.py, or the tree changed?"
    return [f"{tag} should make {expected}, but there is {built}: {reason}"]


def message_problems(text: str) -> list[str]:
    """Return the mistakes in a commit message; empty if the changelog can use it."""
    first = next((line for line in text.splitlines() if line and not line.startswith("#")), "")
    if _MESSAGE.match(first) or first.startswith(_MADE):
        return []
    return [f"{first!r} should begin with one of {', '.join(KINDS)}, a colon and a space"]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
