"""Errors of manifests: mistakes with their places, and conflicts between applies."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from zae_limiter.exceptions import ValidationError, ZAELimiterError

Path = tuple[str, ...]


class Problem(NamedTuple):
    """One mistake. Lines and columns count from 1; they are 0 if the document has no lines."""

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
    """A manifest has mistakes, which are all in ``problems``. Nothing was changed."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        text = "\n".join(map(str, self.problems))
        super().__init__("manifest", first.source, text)
        self.args = (text,)

    def __reduce__(self) -> tuple[type[ManifestError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class ApplyConflict(ZAELimiterError):
    """Another apply has changed the managed state since the plan, or is still changing it.

    ``is_in_progress`` tells that the other apply is still at work, so that waiting helps.
    """

    def __init__(self, reason: str, *, is_in_progress: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_in_progress = is_in_progress

    @classmethod
    def in_progress(cls, principal: str | None, since: str, until: str) -> ApplyConflict:
        """Return the conflict with an apply that holds the lease."""
        return cls(
            f"another apply is in progress, by {principal or 'an unnamed principal'} since "
            f"{since}; its lease ends at {until} or later: wait for its end, then plan again",
            is_in_progress=True,
        )


def suggestion(name: str, offered: Iterable[str]) -> str:
    """Return a hint at the most similar of the offered names, or at all of them."""
    choices = sorted(offered)
    close = get_close_matches(name, choices, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known names: {', '.join(choices)}"
