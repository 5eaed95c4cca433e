"""Mistakes in a manifest, all of them at once with their places, and applies at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zae_limiter.exceptions import ValidationError, ZAELimiterError

Path = tuple[str, ...]


class Problem(NamedTuple):
    """One mistake; lines and columns count from 1, and are 0 where the document has none."""

    source: str
    path: Path
    line: int
    column: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        where = ".".join(self.path)
        return f"{place}: {where}: {self.reason}" if where else f"{place}: {self.reason}"


class ManifestError(ValidationError):
    """A manifest was wrong. Nothing was changed; ``problems`` has every mistake."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        text = "\n".join(map(str, self.problems))
        super().__init__("manifest", first.source, text)
        self.args = (text,)

    def __reduce__(self) -> tuple[type[ManifestError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class ApplyConflict(ZAELimiterError):
    """Another apply has changed the managed state meanwhile, or is still changing it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @classmethod
    def in_progress(cls, principal: str | None, since: str, until: str) -> ApplyConflict:
        """Name the apply that holds the lease."""
        return cls(
            f"another apply is in progress, by {principal or 'an unnamed principal'} since "
            f"{since}; it holds the state until {until} or longer: wait for it, then plan again"
        )


def suggestion(name: str, offered: Iterable[str]) -> str:
    """Return a hint at what may have been meant, or at what there is."""
    from difflib import get_close_matches  # slow to import, and few manifests have mistakes

    choices = sorted(offered)
    close = get_close_matches(name, choices, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(choices)}"
