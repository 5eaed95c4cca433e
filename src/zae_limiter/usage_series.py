"""Usage as series over time, for charts: totals per window, and which windows to label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from zae_limiter.models.usage import UsageSnapshot, WindowType

HOUR_S = 3600
MONDAY_HOUR = 4 * 24  # the first Monday of 1970, in hours; weeks are labelled at their Mondays
STEPS = {WindowType.HOURLY: timedelta(hours=1), WindowType.DAILY: timedelta(days=1)}
LONGEST_MONTH = timedelta(days=31)  # added to the first of any month, it reaches the next one

Totals = dict[str, dict[datetime, int]]  # by limit and window


class SeriesKind(StrEnum):
    """What a series counts."""

    TOKENS = "tokens"
    THROUGH_CHILDREN = "through children"
    REJECTED = "rejected"


class UsageSeries(NamedTuple):
    """Usage of one limit per window, or rejected calls; gaps are zeros.

    Of several entities together, tokens are counted once: what parents used through their children
    is a series of its own.
    """

    limit_name: str
    window_type: str
    starts: tuple[datetime, ...]
    totals: tuple[int, ...]
    entities: int = 1
    kind: SeriesKind = SeriesKind.TOKENS

    @property
    def title(self) -> str:
        if self.kind is SeriesKind.REJECTED:
            return f"rejected calls per {self.unit} (approximate)"
        if self.kind is SeriesKind.THROUGH_CHILDREN:
            return f"{self.limit_name} of parents through children: net tokens per {self.unit}"
        several = f", {self.entities} entities, each token once" if self.entities > 1 else ""
        return f"{self.limit_name}: net tokens per {self.unit}{several}"

    @property
    def unit(self) -> str:
        """``hour``, ``day`` or ``month``."""
        return WindowType(self.window_type).unit

    @property
    def quantity(self) -> str:
        """What the numbers are: ``tokens`` or ``calls``."""
        return "calls" if self.kind is SeriesKind.REJECTED else "tokens"

    def label(self, index: int) -> str:
        """Return a short text for the window at ``index``."""
        style = {"hour": "%m-%d %H:%M", "day": "%Y-%m-%d", "month": "%Y-%m"}[self.unit]
        return self.starts[index].strftime(style)

    def end(self, index: int) -> datetime:
        """Return when the window at ``index`` ends."""
        return next_start(self.starts[index], WindowType(self.window_type))


def usage_series(snapshots: Iterable[UsageSnapshot], window_type: str) -> list[UsageSeries]:
    """Return one series for each limit, sorted by name, all over the same windows.

    Series of what parents used through children, and of rejected calls, follow if there are any.
    """
    selected = [snapshot for snapshot in snapshots if snapshot.window_type == window_type]
    entities = len({snapshot.entity_id for snapshot in selected})
    tokens: Totals = {}
    through: Totals = {}
    rejected: Totals = {}
    used_starts: set[datetime] = set()
    for snapshot in selected:
        start = datetime.fromisoformat(snapshot.window_start).astimezone(UTC)
        used_starts.add(start)
        _add(tokens, start, snapshot.own if entities > 1 else snapshot.counters)
        _add(through, start, snapshot.through_children)
        _add(rejected, start, {"": snapshot.rejected})
    if not used_starts:
        return []
    starts = _range(min(used_starts), max(used_starts), WindowType(window_type))
    kinds = (
        (SeriesKind.TOKENS, tokens),
        (SeriesKind.THROUGH_CHILDREN, _without_zeros(through)),
        (SeriesKind.REJECTED, _without_zeros(rejected)),
    )
    return [
        UsageSeries(
            name,
            window_type,
            starts,
            tuple(limit_totals.get(start, 0) for start in starts),
            entities,
            kind,
        )
        for kind, totals in kinds
        for name, limit_totals in sorted(totals.items())
    ]


def _add(totals: Totals, start: datetime, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        limit_totals = totals.setdefault(name, {})
        limit_totals[start] = limit_totals.get(start, 0) + amount


def _without_zeros(totals: Totals) -> Totals:
    return {name: by_start for name, by_start in totals.items() if any(by_start.values())}


def _range(first: datetime, last: datetime, window: WindowType) -> tuple[datetime, ...]:
    starts = [first]
    while starts[-1] < last:
        starts.append(next_start(starts[-1], window))
    return tuple(starts)


def next_start(start: datetime, window: WindowType) -> datetime:
    """Return where the window after the one at ``start`` starts."""
    if window is WindowType.MONTHLY:
        return (start + LONGEST_MONTH).replace(day=1)
    return start + STEPS[window]


def labelled_windows(series: UsageSeries, max_labels: int) -> list[int]:
    """Return the indexes of the windows to label: at round hours, days or months, evenly apart."""
    count = len(series.starts)
    if series.unit == "month":
        span = next(span for span in _round_months() if -(-count // span) <= max_labels)
        months = [start.year * 12 + start.month - 1 for start in series.starts]
        indexes = [index for index, month in enumerate(months) if month % span == 0]
        return indexes or [0]
    hours = [int(start.timestamp()) // HOUR_S for start in series.starts]
    window = STEPS[WindowType(series.window_type)] // timedelta(hours=1)
    spans = (span for span in _round_spans() if span % window == 0)
    span = next(span for span in spans if -(-count * window // span) <= max_labels)
    indexes = [index for index, hour in enumerate(hours) if (hour - MONDAY_HOUR) % span == 0]
    return indexes or [0]


def _round_months() -> Iterator[int]:
    """Yield spans in months: parts of a year, a year, and twice that, and so on."""
    yield from (1, 2, 3, 6)
    years = 1
    while True:
        yield years * 12
        years *= 2


def _round_spans() -> Iterator[int]:
    """Yield spans in hours: parts of a day, days, a week, and twice that, and so on."""
    yield from (1, 2, 3, 6, 12, 24, 48)
    weeks = 1
    while True:
        yield weeks * 7 * 24
        weeks *= 2


def axis_ticks(series: UsageSeries, count: int) -> list[int]:
    """Return about ``count`` round numbers that span zero and all totals."""
    low, high = min(0, *series.totals), max(1, *series.totals)
    step = next(number for number in _round_numbers() if (high - low) / number <= count)
    return list(range(low // step * step, (-(-high // step) + 1) * step, step))


def _round_numbers() -> Iterator[int]:
    size = 1
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10
