"""Usage windows, pages and summaries computed from stored hours: a day is the sum of its hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby, islice
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import BucketHour, WindowUsage
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso
from zae_limiter.models.usage import UsageSnapshot, UsageSummary, WindowName, WindowType

HOURS = {WindowType.HOURLY: 1, WindowType.DAILY: 24}
MAX_PAGE = 10**6  # a page is held in memory
DELIMITER = "#"  # no id or name may contain it
END_OF_TIME = 24 * 366 * 8000  # in hours, later than any ISO time: its years have four digits


class UsageQuery(NamedTuple):
    """Selects windows by their lengths and by the hours in which they start."""

    windows: tuple[WindowType, ...]
    start_hour: int
    end_hour: int

    @classmethod
    def parse(
        cls,
        window_type: WindowName | None,
        start_time: str | datetime | None,
        end_time: str | datetime | None,
    ) -> UsageQuery:
        if window_type is None:
            windows = tuple(WindowType)
        elif window_type in set(WindowType):
            windows = (WindowType(window_type),)
        else:
            lengths = ", ".join(WindowType)
            raise ValidationError("window_type", window_type, f"must be one of {lengths}")
        start = 0 if start_time is None else -(-ms_from_iso(start_time, "start_time") // HOUR_MS)
        end = END_OF_TIME
        if end_time is not None:
            end = -(-ms_from_iso(end_time, "end_time") // HOUR_MS)
        return cls(windows, start, end)

    @property
    def last_hour(self) -> int:
        """The last hour to read: a window may start just before the end and last a day."""
        return self.end_hour + max(HOURS[window] for window in self.windows) - 1


def snapshots(rows: Iterable[BucketHour], query: UsageQuery) -> Iterator[UsageSnapshot]:
    """Add hours up into windows, oldest first. Reads ordered ``rows`` one day at a time."""
    for _, hours in groupby(rows, key=lambda row: row.usage.hour // HOURS[WindowType.DAILY]):
        totals: dict[tuple[int, WindowType, str, str], WindowUsage] = {}
        for entity_id, resource, usage in hours:
            for window in query.windows:
                start = usage.hour - usage.hour % HOURS[window]
                if query.start_hour <= start < query.end_hour:
                    key = (start, window, entity_id, resource)
                    total = totals.get(key)
                    totals[key] = usage if total is None else total.plus(usage)
        windows = (_snapshot(*key, usage) for key, usage in totals.items())
        yield from sorted(windows, key=sort_key)


def _snapshot(
    start_hour: int, window: WindowType, entity_id: str, resource: str, usage: WindowUsage
) -> UsageSnapshot:
    return UsageSnapshot(
        entity_id=entity_id,
        resource=resource,
        window_start=iso_from_ms(start_hour * HOUR_MS),
        window_end=iso_from_ms((start_hour + HOURS[window]) * HOUR_MS),
        window_type=window.value,
        counters=dict(usage.counters),
        total_events=usage.events,
    )


class UsagePage:
    """Collects at most ``limit`` snapshots after ``next_key``, from hours that come by days."""

    def __init__(self, query: UsageQuery, limit: int, next_key: str | None) -> None:
        self._query = query
        self._limit = min(limit, MAX_PAGE)
        self._last = _parse_key(next_key)
        self._page: list[UsageSnapshot] = []

    def add(self, rows: Iterable[BucketHour]) -> bool:
        """Add the hours of whole days, ordered; return whether the page is complete."""
        last, wanted = self._last, self._limit + 1  # one more shows whether there is a next page
        rest = (
            snapshot
            for snapshot in snapshots(rows, self._query)
            if last is None or sort_key(snapshot) > last
        )
        self._page.extend(islice(rest, wanted - len(self._page)))
        return len(self._page) == wanted

    def end(self) -> tuple[list[UsageSnapshot], str | None]:
        """Return the page and the key of the next one."""
        page, limit = self._page, self._limit
        if len(page) <= limit:
            return page, None
        return page[:limit], page_key(page[limit - 1])


def page_of(
    rows: Iterable[BucketHour], query: UsageQuery, limit: int, next_key: str | None
) -> tuple[list[UsageSnapshot], str | None]:
    """Return at most ``limit`` snapshots after ``next_key``, and the key of the next page."""
    page = UsagePage(query, limit, next_key)
    page.add(rows)
    return page.end()


def _parse_key(next_key: str | None) -> tuple[str, ...] | None:
    if next_key is None:
        return None
    if not isinstance(next_key, str) or next_key.count(DELIMITER) != 3:
        raise ValidationError("next_key", next_key, "must be what the previous page returned")
    return tuple(next_key.split(DELIMITER))


def page_key(last: UsageSnapshot) -> str:
    """Return the ``next_key`` of a page that ends with ``last``."""
    return DELIMITER.join(sort_key(last))


def sort_key(snapshot: UsageSnapshot) -> tuple[str, ...]:
    return snapshot.window_start, snapshot.window_type, snapshot.entity_id, snapshot.resource


class UsageTotal:
    """Adds up totals, and averages per window with usage, from hours that come by whole days."""

    def __init__(self, query: UsageQuery) -> None:
        self._query = query
        self._total: dict[str, int] = {}
        self._count = 0
        self._first: str | None = None
        self._last: str | None = None

    def add(self, rows: Iterable[BucketHour]) -> None:
        """Add the hours of whole days, ordered."""
        for snapshot in snapshots(rows, self._query):
            self._count += 1
            self._first = self._first or snapshot.window_start
            self._last = snapshot.window_start
            for name, amount in snapshot.counters.items():
                self._total[name] = self._total.get(name, 0) + amount

    def end(self) -> UsageSummary:
        return UsageSummary(
            snapshot_count=self._count,
            total=self._total,
            average={name: amount / self._count for name, amount in self._total.items()},
            min_window_start=self._first,
            max_window_start=self._last,
        )


def summary_of(rows: Iterable[BucketHour], query: UsageQuery) -> UsageSummary:
    """Return totals, and averages per window with usage."""
    total = UsageTotal(query)
    total.add(rows)
    return total.end()
