"""Usage windows, pages and summaries from stored hours. Days and months are sums of hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from heapq import nsmallest
from typing import Any, NamedTuple

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.tally import Refusals
from zae_limiter.admission.usage import BucketHour, HourUsage, whole_amounts
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.money import billionths_of, in_currency
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso
from zae_limiter.models.usage import (
    UsageSnapshot,
    UsageSummary,
    WindowName,
    WindowType,
    money_label,
)
from zae_limiter.naming import CURRENCY

DAY = 24  # hours
MAX_PAGE = 10**6  # bounds the memory of a page
DELIMITER = "#"  # no id or name may contain it
END_OF_TIME = 24 * 366 * 8000  # in hours; later than any ISO time, whose years have four digits
LAST_HOUR = 24 * 365 * 7999  # a month that contains a later hour could end after the year 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WindowKey(NamedTuple):
    """The key of a window of one bucket. Windows are sorted by their keys."""

    start_hour: int  # since 1970
    window: str  # the WindowType
    entity_id: str
    resource: str


def window_start(window: WindowType, hour: int) -> int:
    """Return the hour in which the window that contains ``hour`` starts."""
    if window is WindowType.HOURLY:
        return hour
    return hour - hour % DAY if window is WindowType.DAILY else _month(hour // DAY)[0]


def window_end(window: WindowType, hour: int) -> int:
    """Return the hour before which the window that contains ``hour`` ends."""
    if window is WindowType.MONTHLY:
        return _month(hour // DAY)[1]
    return window_start(window, hour) + (1 if window is WindowType.HOURLY else DAY)


@lru_cache(maxsize=64)  # the days of two months are enough, since hours come in order of time
def _month(day: int) -> tuple[int, int]:
    """Return the first hour of a day's month and of the next month; days count from 1970."""
    date = _EPOCH + timedelta(days=min(max(day, 0), LAST_HOUR // DAY))
    first = date.replace(day=1)
    following = (first + timedelta(days=31)).replace(day=1)
    return (first - _EPOCH).days * DAY, (following - _EPOCH).days * DAY


class UsageQuery(NamedTuple):
    """Selects windows by their lengths and by the hours in which they start.

    What calls of dead processes held is no usage if it has expired by ``now_ms``.
    """

    windows: tuple[WindowType, ...]
    start_hour: int
    end_hour: int
    now_ms: int = 0

    @classmethod
    def parse(
        cls,
        window_type: WindowName | None,
        start_time: str | datetime | None,
        end_time: str | datetime | None,
        offered: Collection[WindowType] = tuple(WindowType),
        now_ms: int = 0,
    ) -> UsageQuery:
        """Return the query. Without a ``window_type``, it selects all offered lengths."""
        if window_type is None:
            windows = tuple(offered)
        elif window_type in set(offered):
            windows = (WindowType(window_type),)
        else:
            lengths = ", ".join(offered)
            raise ValidationError("window_type", window_type, _not_offered(window_type, lengths))
        start = 0 if start_time is None else -(-ms_from_iso(start_time, "start_time") // HOUR_MS)
        end = END_OF_TIME
        if end_time is not None:
            end = -(-ms_from_iso(end_time, "end_time") // HOUR_MS)
        return cls(windows, start, end, now_ms)

    @property
    def last_hour(self) -> int:
        """The hour before which reading stops: the end of the last window, which may be long."""
        return max(window_end(window, self.end_hour - 1) for window in self.windows)

    def keys(self, row: BucketHour) -> list[WindowKey]:
        """Return the windows of the query to which an hour belongs."""
        return self.keys_of(row.entity_id, row.resource, row.usage.hour)

    def keys_of(self, entity_id: str, resource: str, hour: int) -> list[WindowKey]:
        """Return the windows of the query to which an hour of a bucket belongs."""
        keys = [
            WindowKey(window_start(window, hour), window.value, entity_id, resource)
            for window in self.windows
        ]
        return [key for key in keys if self.start_hour <= key.start_hour < self.end_hour]


def _not_offered(window_type: object, lengths: str) -> str:
    if window_type in set(WindowType):
        return f"is not offered here: the setting snapshot_windows has only {lengths}"
    return f"must be one of {lengths}"


class ShownNames(NamedTuple):
    """The names of counted limits as users see them, and the currencies of budgets among them."""

    by_counted: Mapping[str, str]
    currencies: Mapping[str, str]

    @classmethod
    def of(cls, counted: Iterable[str]) -> ShownNames:
        """Return the plain names; a budget whose name occurs twice is ``usd (USD)``."""
        parts = {name: name.partition(CURRENCY) for name in counted}
        occurrences = Counter(plain for plain, _, _ in parts.values())
        names, currencies = {}, {}
        for name, (plain, _, currency) in parts.items():
            is_only = occurrences[plain] == 1 or not currency
            names[name] = plain if is_only else money_label(plain, currency)
            if currency:
                currencies[names[name]] = currency
        return cls(names, currencies)

    def amounts(self, counted_milli: Mapping[str, int]) -> dict[str, int | Decimal]:
        """Return whole tokens by shown name; amounts of budgets are in currency units."""
        return self.of_whole(whole_amounts(counted_milli))

    def of_whole(self, counted: Mapping[str, int]) -> dict[str, int | Decimal]:
        """Return amounts by shown name that are whole tokens already, as those of rejections."""
        return {
            self.by_counted[name]: in_currency(amount) if CURRENCY in name else amount
            for name, amount in counted.items()
        }


def _snapshot(key: WindowKey, usage: HourUsage) -> UsageSnapshot:
    end_hour = window_end(WindowType(key.window), key.start_hour)
    names = ShownNames.of({**usage.used, **usage.through_children, **usage.tally.asked})
    return UsageSnapshot(
        entity_id=key.entity_id,
        resource=key.resource,
        window_start=iso_from_ms(key.start_hour * HOUR_MS),
        window_end=iso_from_ms(end_hour * HOUR_MS),
        window_type=key.window,
        counters=names.amounts(usage.used),
        total_events=usage.admitted,
        through_children=names.amounts(usage.through_children),
        rejected=usage.tally.rejected,
        waited=usage.tally.waited,
        rejected_through_children=usage.tally.through_children,
        rejected_amounts=names.of_whole(usage.tally.asked),
        currencies=dict(names.currencies),
        shadowed=usage.tally.shadowed,
        events_elsewhere=usage.tally.elsewhere,
        rejected_as_further=usage.tally.as_further,
        **_refusals(key, usage.tally.refusals),
    )


def _refusals(key: WindowKey, refusals: Refusals | None) -> dict[str, Any]:
    """Return what rejected the acquires of a window, with full names."""
    if refusals is None:
        return {}
    refusals = refusals.with_names(key.entity_id, key.resource)
    return {
        "limited_by": refusals.frequent,
        "last_limited_by": refusals.latest,
        "last_rejected_at": iso_from_ms(refusals.at_s * 1000),
    }


class UsageReport:
    """A report of a query that a store fills with hours. It needs all of them, unless it says so.

    ``rows_of_bucket`` is about how many days of one bucket it needs; None stands for all.
    """

    rows_of_bucket: int | None = None

    def __init__(self, query: UsageQuery) -> None:
        self.query = query

    def add(self, rows: Iterable[BucketHour]) -> None:
        """Add hours, in order of days."""
        raise NotImplementedError

    @property
    def first_hour(self) -> int:
        """The first hour to read."""
        return self.query.start_hour

    @property
    def first_entity(self) -> str:
        """The first entity to read on the first day, if all windows are days."""
        return ""

    def wants(self, entity_id: str, resource: str, day: int) -> bool:
        """Tell whether the report may need hours of a bucket on a day."""
        return True

    def is_complete(self, hour: int) -> bool:
        """Tell whether the report needs no hours from this one on."""
        return False

    @property
    def is_full(self) -> bool:
        """Whether it needs no more hours, if all windows are days and come sorted by entity."""
        return False


class UsagePage(UsageReport):
    """Collects the first ``limit`` snapshots after ``next_key``, from hours in order of days.

    It holds at most about twice ``limit`` windows, even if many more windows come after them.
    """

    def __init__(self, query: UsageQuery, limit: int, next_key: str | None) -> None:
        super().__init__(query)
        shortest = min(window_end(window, 0) for window in query.windows)
        self.rows_of_bucket = (limit + 1) * shortest // DAY + 2
        self._wanted = min(limit, MAX_PAGE) + 1  # the extra one shows that there is a next page
        self._last = None if next_key is None else _parse_key(next_key)
        self._windows: dict[WindowKey, HourUsage] = {}
        self._highest: WindowKey | None = (
            None  # if there are enough windows, later ones are left out
        )

    @property
    def first_hour(self) -> int:
        """The first hour to read: no window of the page starts earlier."""
        start_hour = self.query.start_hour
        return start_hour if self._last is None else max(start_hour, self._last.start_hour)

    @property
    def first_entity(self) -> str:
        last = self._last
        return last.entity_id if last is not None and last.start_hour == self.first_hour else ""

    @property
    def is_full(self) -> bool:
        return len(self._windows) >= self._wanted

    def add(self, rows: Iterable[BucketHour]) -> None:
        last = self._last
        for row in rows:
            for key in self.query.keys(row):
                if last is not None and key <= last:
                    continue
                total = self._windows.get(key)
                if total is not None:
                    self._windows[key] = total.plus(row.usage)
                elif self._highest is None or key < self._highest:
                    self._windows[key] = row.usage
            if len(self._windows) > 2 * self._wanted:
                self._drop_later()

    def wants(self, entity_id: str, resource: str, day: int) -> bool:
        last, highest = self._last, self._highest
        first = day * DAY
        is_hourly = WindowType.HOURLY in self.query.windows
        return any(
            (last is None or key > last) and (highest is None or key <= highest)
            for hour in range(first, first + (DAY if is_hourly else 1))
            for key in self.query.keys_of(entity_id, resource, hour)
        )

    def _drop_later(self) -> None:
        kept = nsmallest(self._wanted, self._windows)
        self._highest = kept[-1]
        self._windows = {key: self._windows[key] for key in kept}

    def is_complete(self, hour: int) -> bool:
        if len(self._windows) < self._wanted:
            return False
        self._drop_later()
        assert self._highest is not None
        first, last = self.first_hour, self._highest.start_hour
        return all(_start_from(window, first, hour) > last for window in self.query.windows)

    def end(self) -> tuple[list[UsageSnapshot], str | None]:
        """Return the page and the key of the next page."""
        keys = nsmallest(self._wanted, self._windows)
        page = [_snapshot(key, self._windows[key]) for key in keys[: self._wanted - 1]]
        return page, None if len(keys) < self._wanted else page_key(page[-1])


def _start_from(window: WindowType, first: int, hour: int) -> int:
    """Return the first start of a window, not before ``first``, that contains or follows hours."""
    hour = max(hour, first)
    start = window_start(window, hour)
    return start if start >= first else window_end(window, hour)


def page_of(
    rows: Iterable[BucketHour], query: UsageQuery, limit: int, next_key: str | None
) -> tuple[list[UsageSnapshot], str | None]:
    """Return at most ``limit`` snapshots after ``next_key``, and the key of the next page."""
    page = UsagePage(query, limit, next_key)
    page.add(rows)
    return page.end()


def _parse_key(next_key: str) -> WindowKey:
    if not isinstance(next_key, str) or next_key.count(DELIMITER) != 3:
        raise ValidationError("next_key", next_key, "must be the key of the previous page")
    start, window, entity_id, resource = next_key.split(DELIMITER)
    return WindowKey(ms_from_iso(start, "next_key") // HOUR_MS, window, entity_id, resource)


def page_key(last: UsageSnapshot) -> str:
    """Return the ``next_key`` of a page that ends with ``last``."""
    return DELIMITER.join((last.window_start, last.window_type, last.entity_id, last.resource))


@dataclass(slots=True)
class _LatestWindow:
    """The latest window of one length, with the buckets (entity and resource) seen in it."""

    start_hour: int
    buckets: set[tuple[str, str]] = field(default_factory=set)


class UsageTotal(UsageReport):
    """Adds up totals, and averages per window with usage, from hours in order of days.

    Hours of one day may come in any order; of one bucket and hour they come in a row.

    Totals over all entities leave out the usage of parents through their children, and the
    children's acquires that parents rejected, since the children count both as well. Over all
    resources a rejected acquire counts at the first one alone.
    """

    def __init__(self, query: UsageQuery, *, entity_id: str | None, resource: str | None) -> None:
        super().__init__(query)
        self._each_token_once = entity_id is None
        self._is_over_resources = resource is None
        self._total = HourUsage(query.start_hour)
        self._snapshots = 0
        self._used_windows: set[tuple[str, int]] = set()  # lengths and starts
        self._starts: list[int] = []  # the first and the last start of a window
        self._latest: dict[str, _LatestWindow] = {}  # by the length of the window

    def add(self, rows: Iterable[BucketHour]) -> None:
        for row in rows:
            for key in self.query.keys(row):
                self._count(key, row.usage)

    def _count(self, key: WindowKey, usage: HourUsage) -> None:
        start = key.start_hour
        latest = self._latest.get(key.window)
        if latest is None or latest.start_hour != start:
            latest = self._latest[key.window] = _LatestWindow(start)
        if usage.admitted or any(usage.used.values()):
            self._used_windows.add((key.window, start))
        bucket = (key.entity_id, key.resource)
        if bucket not in latest.buckets:
            latest.buckets.add(bucket)
            self._snapshots += 1
        self._starts = [min([*self._starts, start]), max([*self._starts, start])]
        named = usage._replace(tally=usage.tally.with_names(*bucket))
        self._total = self._total.plus(named)

    def end(self) -> UsageSummary:
        """Return the summary of all hours that were added."""
        _, total, admitted, through, tally = self._total
        rejected = tally.rejected
        if self._each_token_once:
            total = {name: amount - through.get(name, 0) for name, amount in total.items()}
            rejected -= tally.through_children
        if self._is_over_resources:
            rejected -= tally.as_further
        first, last = (iso_from_ms(hour * HOUR_MS) for hour in self._starts or (0, 0))
        windows = len(self._used_windows)
        names = ShownNames.of({**total, **through})
        shown = names.amounts(total)
        return UsageSummary(
            snapshot_count=self._snapshots,
            total=shown,
            average={name: average(amount, windows) for name, amount in shown.items()},
            min_window_start=first if self._snapshots else None,
            max_window_start=last if self._snapshots else None,
            through_children=names.amounts(through),
            window_count=windows,
            rejected=rejected,
            waited=tally.waited,
            currencies=dict(names.currencies),
            shadowed=tally.shadowed,
            calls=admitted - tally.elsewhere,
            rejected_calls=tally.rejected - tally.rejected_elsewhere,
            limited_by=None if tally.refusals is None else tally.refusals.frequent,
        )


def average(amount: int | Decimal, windows: int) -> float | Decimal:
    """Return the average of some windows; of money, rounded to a billionth."""
    if isinstance(amount, Decimal):
        units = billionths_of(amount)
        return in_currency((2 * units + windows) // (2 * windows)) if windows else amount
    return amount / windows if windows else 0.0
