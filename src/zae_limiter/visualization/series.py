"""Usage windows as one series of numbers for each limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from zae_limiter.models.usage import UsageSnapshot, WindowType

HOUR_S = 3600
MONDAY_HOUR = 4 * 24  # the first after 1970 began
STEPS = {WindowType.HOURLY: timedelta(hours=1), WindowType.DAILY: timedelta(days=1)}


class Series(NamedTuple):
    """What one limit used in each window, summed over entities and resources; gaps are zeros."""

    limit_name: str
    window_type: str
    starts: tuple[datetime, ...]
    totals: tuple[int, ...]
    entities: int = 1

    @property
    def title(self) -> str:
        """A parent counts the calls of its children again, so the number of entities matters."""
        several = f", {self.entities} entities together" if self.entities > 1 else ""
        return f"{self.limit_name}: net tokens per {self.unit}{several}"

    @property
    def unit(self) -> str:
        """``hour`` or ``day``."""
        return "hour" if self.window_type == WindowType.HOURLY else "day"

    def label(self, index: int) -> str:
        """A window in a few characters."""
        style = "%m-%d %H:%M" if self.unit == "hour" else "%Y-%m-%d"
        return self.starts[index].strftime(style)


def usage_series(found: Iterable[UsageSnapshot], window_type: str) -> list[Series]:
    """One series for each limit, sorted by name, all over the same windows."""
    totals: dict[str, dict[datetime, int]] = {}
    moments: set[datetime] = set()
    entities: set[str] = set()
    for each in found:
        if each.window_type != window_type:
            continue
        start = datetime.fromisoformat(each.window_start).astimezone(UTC)
        moments.add(start)
        entities.add(each.entity_id)
        for name, amount in each.counters.items():
            of_limit = totals.setdefault(name, {})
            of_limit[start] = of_limit.get(start, 0) + amount
    if not moments:
        return []
    starts = _every(min(moments), max(moments), STEPS[WindowType(window_type)])
    return [
        Series(
            name,
            window_type,
            starts,
            tuple(of_limit.get(start, 0) for start in starts),
            len(entities),
        )
        for name, of_limit in sorted(totals.items())
    ]


def _every(first: datetime, last: datetime, step: timedelta) -> tuple[datetime, ...]:
    return tuple(first + index * step for index in range((last - first) // step + 1))


def marked(series: Series, most: int) -> list[int]:
    """At most so many windows that get a label: round hours or days, evenly apart."""
    hours = [int(start.timestamp()) // HOUR_S for start in series.starts]
    window = STEPS[WindowType(series.window_type)] // timedelta(hours=1)
    count = len(hours)
    spans = (span for span in _round_spans() if span % window == 0)
    span = next(span for span in spans if -(-count * window // span) <= most)
    found = [index for index, hour in enumerate(hours) if (hour - MONDAY_HOUR) % span == 0]
    return found or [0]


def _round_spans() -> Iterator[int]:
    """Hours: parts of a day, days, weeks, and twice that, and so on."""
    yield from (1, 2, 3, 6, 12, 24, 48)
    weeks = 1
    while True:
        yield weeks * 7 * 24
        weeks *= 2


def scale(series: Series, lines: int) -> list[int]:
    """Round numbers from zero (or below) to beyond the largest total, about ``lines`` of them."""
    low, high = min(0, *series.totals), max(1, *series.totals)
    step = next(each for each in _round_numbers() if (high - low) / each <= lines)
    return list(range(low // step * step, (-(-high // step) + 1) * step, step))


def _round_numbers() -> Iterator[int]:
    size = 1
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10
