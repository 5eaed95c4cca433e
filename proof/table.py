"""Results of runs, kept as JSON so that a long proof can be resumed, and their table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from proof.checker.verdict import Findings
from proof.harness.plan import OURS, THROTTLED_REDIS

HEAD = (
    "fault",
    "subject",
    "seeds",
    "operations",
    "firings",
    "excess",
    "shortfall",
    "missing",
    "double credits",
    "unknown",
    "recovery",
)


@dataclass(frozen=True, slots=True)
class Result:
    """One run in numbers."""

    subject: str
    fault: str
    seed: int
    operations: int
    firings: int
    excess: float  # tokens
    shortfall: float
    missing: float
    credited_twice: float
    usage_error: float
    unknown: int
    longest_s: float
    recovery_s: float | None
    host_clocks_s: float
    limiter_clocks_s: float
    quota_windows: int
    broken: tuple[str, ...]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> Result:
        words = json.loads(path.read_text())
        return cls(**{**words, "broken": tuple(words["broken"])})


def result_of(found: Findings) -> Result:
    """Return the numbers of the findings in one history."""
    return Result(
        subject=found.subject,
        fault=found.fault,
        seed=found.seed,
        operations=found.operations,
        firings=found.firings,
        excess=found.excess.tokens,
        shortfall=0.0 if found.shortfall is None else found.shortfall.tokens,
        missing=found.missing,
        credited_twice=found.credited_twice,
        usage_error=found.usage_error,
        unknown=found.unknown,
        longest_s=found.longest_ns / 1e9,
        recovery_s=None if found.recovery_ns is None else found.recovery_ns / 1e9,
        host_clocks_s=found.host_clocks_ns / 1e9,
        limiter_clocks_s=found.limiter_clocks_ns / 1e9,
        quota_windows=found.quota_windows,
        broken=tuple(found.broken),
    )


def row(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the row of one fault and subject: sums, and the worst of all seeds."""
    first = results[0]
    recoveries = [each.recovery_s for each in results]
    known = [each for each in recoveries if each is not None]
    # Nothing shows what others have left, and when a window of theirs would admit.
    is_ours, is_bucket = first.subject in OURS, first.subject == THROTTLED_REDIS
    return (
        first.fault,
        first.subject,
        str(len(results)),
        f"{sum(each.operations for each in results):,}",
        "–" if first.fault == "none" else f"{sum(each.firings for each in results):,}",
        _tokens(max(each.excess for each in results)),
        _tokens(max(each.shortfall for each in results)) if is_ours or is_bucket else "–",
        _tokens(sum(each.missing for each in results)) if is_ours else "–",
        _tokens(sum(each.credited_twice for each in results)) if is_ours else "–",
        f"{sum(each.unknown for each in results):,}",
        "–"
        if first.fault == "none"
        else f"{max(known):.1f} s"
        if len(known) == len(recoveries)
        else "not within the run",
    )


def not_applicable(fault: str, subject: str, reason: str) -> tuple[str, ...]:
    """Return the row of a fault that cannot happen to a subject."""
    return (fault, subject, "n/a", reason, *[""] * (len(HEAD) - 4))


def _tokens(amount: float) -> str:
    return f"{amount:.3f}".rstrip("0").rstrip(".")


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown that is aligned for people."""
    lines = [HEAD, *rows]
    # Reasons of rows that do not apply may be longer than any number.
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = ["| " + " | ".join(_cells(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def _cells(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
