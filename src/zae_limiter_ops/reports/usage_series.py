"""Usage as series over time, for charts: stacks of entities, and labels of windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from zae_limiter.models.money import billionths_of, in_currency
from zae_limiter.models.usage import UsageSnapshot, WindowType
from zae_limiter_ops.views.columns import as_text

HOUR_S = 3600
MONDAY_HOUR = 4 * 24  # the first Monday of 1970, in hours; weeks are labelled at their Mondays
STEPS = {WindowType.HOURLY: timedelta(hours=1), WindowType.DAILY: timedelta(days=1)}
LONGEST_MONTH = timedelta(days=31)  # the first of any month plus this is in the next month

LABEL_LENGTH = 40  # of an id in a legend or title
Amount: TypeAlias = int | Decimal  # tokens or calls, or money of a budget


class SeriesKind(StrEnum):
    """The quantity that a series counts: tokens or money of a limit, or calls of a kind."""

    TOKENS = "tokens"
    REJECTED = "rejected"
    SHADOWED = "shadowed"


class CountedLimit(NamedTuple):
    """The name of a limit, and the currency of a budget; empty for tokens and calls.

    Calls stand in the place of a limit. Their name is empty, which no name of a limit is.
    """

    name: str
    currency: str = ""
    kind: SeriesKind = SeriesKind.TOKENS

    @property
    def counts_calls(self) -> bool:
        """Whether this stands for calls instead of a limit."""
        return self.kind is not SeriesKind.TOKENS


REJECTED = CountedLimit("", kind=SeriesKind.REJECTED)
SHADOWED = CountedLimit("", kind=SeriesKind.SHADOWED)

# By limit, entity and window.
Amounts = dict[CountedLimit, dict[str, dict[datetime, Amount]]]


class UsagePart(NamedTuple):
    """The share of one entity in a series, or of the rest: all entities without a name."""

    label: str
    totals: tuple[Amount, ...]
    is_rest: bool = False


class UsageSeries(NamedTuple):
    """Usage of one limit per window, or rejected or shadowed calls, by entity; gaps are zeros.

    Over several entities each token counts once: for the entity that used it, and not for its
    parent. ``through_children`` is the part of one entity's tokens that its children used. Money is
    counted in units of ``currency``. ``most_calls`` names the entity with the most of these
    calls. That entity may be part of the rest, because tokens decide about the named entities.
    """

    limit_name: str
    window_type: str
    starts: tuple[datetime, ...]
    parts: tuple[UsagePart, ...]
    kind: SeriesKind = SeriesKind.TOKENS
    through_children: Amount = 0
    is_deduplicated: bool = False
    most_calls: str = ""
    currency: str = ""

    @property
    def totals(self) -> tuple[Amount, ...]:
        """The sums of all parts, window by window."""
        return tuple(map(sum, zip(*(part.totals for part in self.parts), strict=True)))

    @property
    def title(self) -> str:
        total = sum(self.totals)
        if self.kind is not SeriesKind.TOKENS:
            most = f", most at {self.most_calls}" if self.most_calls else ""
            return f"{self.kind} calls per {self.unit}, {total:,} in all (approximate){most}"
        title = f"{self.limit_name}: net {self.quantity} per {self.unit}, {as_text(total)} in all"
        if self.through_children:
            title += f", {as_text(self.through_children)} of them through children"
        each = self.currency or "token"
        return title + (f", each {each} once" if self.is_deduplicated else "")

    @property
    def unit(self) -> str:
        """``hour``, ``day`` or ``month``."""
        return WindowType(self.window_type).unit

    @property
    def quantity(self) -> str:
        """The counted thing: ``tokens``, ``calls``, or a currency."""
        return self.currency or "tokens" if self.kind is SeriesKind.TOKENS else "calls"

    @property
    def extent(self) -> tuple[Amount, Amount]:
        """The lowest and the highest point of the stacks; negative parts hang below zero."""
        low: Amount = 0
        high: Amount = 0
        for amounts in zip(*(part.totals for part in self.parts), strict=True):
            low = min(low, sum(amount for amount in amounts if amount < 0))
            high = max(high, sum(amount for amount in amounts if amount > 0))
        return low, high

    def stacks(self) -> Iterator[list[tuple[float, float]]]:
        """Yield the bottoms and tops of the bars of each part, one bar for each window."""
        above: list[float] = [0] * len(self.starts)
        below: list[float] = [0] * len(self.starts)
        for part in self.parts:
            bars = []
            for index, exact in enumerate(part.totals):
                amount = float(exact) if isinstance(exact, Decimal) else exact  # only drawn
                ends = above if amount > 0 else below
                bars.append((ends[index], ends[index] + amount))
                ends[index] += amount
            yield bars

    def label(self, index: int) -> str:
        """Return a short text for the window at ``index``."""
        style = {"hour": "%m-%d %H:%M", "day": "%Y-%m-%d", "month": "%Y-%m"}[self.unit]
        return self.starts[index].strftime(style)

    def end(self, index: int) -> datetime:
        """Return the end of the window at ``index``."""
        return next_start(self.starts[index], WindowType(self.window_type))


class UsageChart(NamedTuple):
    """A headline and a series for each limit; every series has the same parts in the same order."""

    headline: str
    series: tuple[UsageSeries, ...]

    @property
    def parts(self) -> tuple[UsagePart, ...]:
        """The parts of the first series, for a legend: the largest entities, and the rest."""
        return self.series[0].parts


def usage_chart(
    snapshots: Iterable[UsageSnapshot], window_type: str, largest: int, place: str = ""
) -> UsageChart | None:
    """Return series for each limit, sorted by name, and for rejected and shadowed calls.

    The result is None without usage.

    The ``largest`` entities are parts of their own: the entities with the largest share of any
    limit's tokens. ``place`` names the place of the entities in the headline, such as a namespace.
    """
    selected = [snapshot for snapshot in snapshots if snapshot.window_type == window_type]
    if not selected:
        return None
    several = len({snapshot.entity_id for snapshot in selected}) > 1
    several_buckets = len({(each.entity_id, each.resource) for each in selected}) > 1
    amounts: Amounts = {}
    for snapshot in selected:
        start = datetime.fromisoformat(snapshot.window_start).astimezone(UTC)
        used = snapshot.own if several else snapshot.counters
        counted: list[tuple[CountedLimit, Amount]] = [
            (REJECTED, snapshot.rejected_calls if several_buckets else snapshot.rejected),
            (SHADOWED, snapshot.shadowed),
        ]
        for name, amount in used.items():
            counted.append((CountedLimit(name, snapshot.currencies.get(name, "")), amount))
        for limit, amount in counted:
            totals = amounts.setdefault(limit, {}).setdefault(snapshot.entity_id, {})
            totals[start] = totals.get(start, 0) + amount
    starts = _all_starts(amounts, WindowType(window_type))
    named, rest = _ranked(amounts, largest)
    through = _through_children(selected)
    series = [
        UsageSeries(
            limit_name=limit.name,
            window_type=window_type,
            starts=starts,
            parts=_parts(by_entity, named, rest, starts),
            kind=limit.kind,
            through_children=0 if several else through.get(limit, 0),
            is_deduplicated=several and bool(through.get(limit)),
            most_calls=_most(by_entity) if limit.counts_calls else "",
            currency=limit.currency,
        )
        for limit, by_entity in sorted(amounts.items(), key=lambda each: (not each[0].name, each))
        if not limit.counts_calls or _has_any(by_entity)
    ]
    resources = sorted({snapshot.resource for snapshot in selected})
    who = named[0] if len(named) == 1 else f"{len(named) + len(rest):,} entities"
    where = resources[0] if len(resources) == 1 else f"{len(resources):,} resources"
    when = _time_of(starts, WindowType(window_type))
    headline = f"Usage of {who}{f' in {place}' if place else ''} on {where} {when}"
    return UsageChart(headline, tuple(series))


def _all_starts(amounts: Amounts, window: WindowType) -> tuple[datetime, ...]:
    used = {
        start for by_entity in amounts.values() for each in by_entity.values() for start in each
    }
    return _range(min(used), max(used), window)


def _ranked(amounts: Amounts, largest: int) -> tuple[list[str], list[str]]:
    """Return the entities with the largest shares of any limit's tokens, and all others with usage.

    Entities that were only rejected or shadowed come last.
    """
    shares: dict[str, tuple[float, float]] = {}  # of tokens, of rejected or shadowed calls
    for limit, by_entity in amounts.items():
        sums = {name: _size(sum(each.values())) for name, each in by_entity.items()}
        total = sum(sums.values()) or 1
        for name, amount in sums.items():
            tokens, calls = shares.get(name, (0.0, 0.0))
            if limit.counts_calls:
                calls = max(calls, float(amount / total))
            else:
                tokens = max(tokens, float(amount / total))
            shares[name] = tokens, calls
    ranked = sorted(shares, key=lambda name: (-shares[name][0], -shares[name][1], name))
    used = [name for name in ranked if any(shares[name])] or ranked[:1]
    return used[:largest], used[largest:]


def _size(amount: Amount) -> Amount:
    return amount if amount >= 0 else -amount


def _most(by_entity: dict[str, dict[datetime, Amount]]) -> str:
    """Return the entity with the largest sum, and that sum; empty if there is only one entity."""
    sums = {name: sum(each.values()) for name, each in by_entity.items()}
    name = min(sums, key=lambda name: (-sums[name], name))
    return f"{shortened(name, LABEL_LENGTH)} ({sums[name]:,})" if len(sums) > 1 else ""


def _parts(
    by_entity: dict[str, dict[datetime, Amount]],
    named: list[str],
    rest: list[str],
    starts: tuple[datetime, ...],
) -> tuple[UsagePart, ...]:
    def totals(entities: list[str]) -> tuple[Amount, ...]:
        each = [by_entity.get(name, {}) for name in entities]
        return tuple(sum(amounts.get(start, 0) for amounts in each) for start in starts)

    parts = [UsagePart(name, totals([name])) for name in named]
    if rest:
        label = "1 other" if len(rest) == 1 else f"{len(rest):,} others"
        parts.append(UsagePart(label, totals(rest), is_rest=True))
    return tuple(parts)


def _through_children(snapshots: Iterable[UsageSnapshot]) -> dict[CountedLimit, Amount]:
    through: dict[CountedLimit, Amount] = {}
    for snapshot in snapshots:
        for name, amount in snapshot.through_children.items():
            limit = CountedLimit(name, snapshot.currencies.get(name, ""))
            through[limit] = through.get(limit, 0) + amount
    return through


def _has_any(by_entity: dict[str, dict[datetime, Amount]]) -> bool:
    return any(any(amounts.values()) for amounts in by_entity.values())


def _time_of(starts: tuple[datetime, ...], window: WindowType) -> str:
    """Return the length of the windows, and the time from the first to the end of the last."""
    style = "%Y-%m-%d %H:%M" if window is WindowType.HOURLY else "%Y-%m-%d"
    first, end = starts[0], next_start(starts[-1], window)
    return f"by {window.unit}, {first.strftime(style)} to {end.strftime(style)} UTC"


def _range(first: datetime, last: datetime, window: WindowType) -> tuple[datetime, ...]:
    starts = [first]
    while starts[-1] < last:
        starts.append(next_start(starts[-1], window))
    return tuple(starts)


def next_start(start: datetime, window: WindowType) -> datetime:
    """Return the start of the window after the window at ``start``."""
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


def axis_ticks(series: UsageSeries, count: int) -> list[Amount]:
    """Return about ``count`` round numbers that span zero and all stacks."""
    low, high = series.extent
    if not series.currency:
        return list(_round_ticks(int(low), int(high), count))
    ticks = _round_ticks(billionths_of(low), billionths_of(high), count)
    return [in_currency(tick) for tick in ticks]


def _round_ticks(low: int, high: int, count: int) -> range:
    high = max(high, 1)
    step = next(number for number in _round_numbers() if (high - low) / number <= count)
    return range(low // step * step, (-(-high // step) + 1) * step, step)


def _round_numbers() -> Iterator[int]:
    size = 1
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10


def shortened(label: str, length: int, ellipsis: str = "…") -> str:
    """Return a label with its middle left out if it is longer than ``length``."""
    if len(label) <= length:
        return label
    kept = length - len(ellipsis)
    return label[: kept - kept // 2] + ellipsis + label[-(kept // 2) :]
