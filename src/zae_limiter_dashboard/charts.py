"""Charts: the numbers that a script draws, with the table behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from zae_limiter_dashboard.history import ChartHour
from zae_limiter_ops.views.formatting import count_of


@dataclass(frozen=True, slots=True)
class CallsChart:
    """Admitted and rejected calls over time, and apart from them the shadowed ones.

    A shadowed call would have been rejected, and shadow mode let it through. The shadow mode of a
    bucket admits such a call, that of a call or limiter lets it through uncharged and uncounted.
    """

    unit: str  # hour or day
    points: tuple[tuple[datetime, ChartHour], ...]

    @classmethod
    def of(cls, unit: str, points: Sequence[tuple[datetime, ChartHour]]) -> CallsChart:
        return cls(unit, tuple(points))

    @property
    def data(self) -> dict[str, Any]:
        """The numbers for the script."""
        return {
            "unit": self.unit,
            "times": [int(start.timestamp()) for start, _ in self.points],
            "admitted": [counts.admitted for _, counts in self.points],
            "rejected": [counts.rejected for _, counts in self.points],
            "shadowed": [counts.shadowed for _, counts in self.points],
        }

    @property
    def table(self) -> list[tuple[str, ChartHour]]:
        """The windows with calls, newest first."""
        style = "%Y-%m-%d %H:%MZ" if self.unit == "hour" else "%Y-%m-%d"
        used = [(start.strftime(style), counts) for start, counts in self.points]
        return [
            (start, counts)
            for start, counts in reversed(used)
            if counts.admitted or counts.rejected or counts.shadowed
        ]

    @property
    def summary(self) -> str:
        """The chart in a sentence, for people who cannot see it."""
        admitted = sum(counts.admitted for _, counts in self.points)
        rejected = sum(counts.rejected for _, counts in self.points)
        shadowed = sum(counts.shadowed for _, counts in self.points)
        span = f"{len(self.points)} {self.unit}s"
        apart = f", {count_of(shadowed, 'shadow rejection')}" if shadowed else ""
        return f"{admitted:,} admitted and {rejected:,} rejected calls{apart} in {span}"
