"""Usage windows as users see them, from hours: a day is the sum of its hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby, islice
from typing import Any, NamedTuple, Protocol

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import WindowUsage
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso
from zae_limiter.models.usage import UsageSnapshot, UsageSummary, WindowType

HOURS = {WindowType.HOURLY: 1, WindowType.DAILY: 24}
MAX_PAGE = 10**6
DELIMITER = "#"  # no id or name may contain it
END_OF_TIME = 24 * 366 * 8000  # hours; ISO text has four-digit years


class UsageRow(Protocol):
    """An hour of one bucket; unpacks to entity, resource and usage."""

    @property
    def usage(self) -> WindowUsage: ...
    def __iter__(self) -> Iterator[Any]: ...


class UsageQuery(NamedTuple):
    """Which windows: their lengths, and the hours in which they may start."""

    windows: tuple[WindowType, ...]
    start_hour: int
    end_hour: int

    @classmethod
    def parse(
        cls,
        window_type: str | None,
        start_time: str | datetime | None,
        end_time: str | datetime | None,
    ) -> UsageQuery:
        if window_type is None:
            windows = tuple(WindowType)
        elif window_type in set(WindowType):
            windows = (WindowType(window_type),)
        else:
            known = ", ".join(WindowType)
            raise ValidationError("window_type", window_type, f"must be one of {known}")
        start = 0 if start_time is None else -(-ms_from_iso(start_time, "start_time") // HOUR_MS)
        end = END_OF_TIME
        if end_time is not None:
            end = -(-ms_from_iso(end_time, "end_time") // HOUR_MS)
        return cls(windows, start, end)

    @property
    def last_hour(self) -> int:
        """The last window may start just before the end and last a day."""
        return self.end_hour + max(HOURS[window] for window in self.windows) - 1


def snapshots(rows: Iterable[UsageRow], query: UsageQuery) -> Iterator[UsageSnapshot]:
    """Hours, in their order, added up into windows, oldest first; a day at a time."""
    for _, hours in groupby(rows, key=lambda row: row.usage.hour // HOURS[WindowType.DAILY]):
        totals: dict[tuple[int, WindowType, str, str], WindowUsage] = {}
        for entity_id, resource, usage in hours:
            for window in query.windows:
                start = usage.hour - usage.hour % HOURS[window]
                if query.start_hour <= start < query.end_hour:
                    key = (start, window, entity_id, resource)
                    known = totals.get(key)
                    totals[key] = usage if known is None else known.plus(usage)
        yield from sorted((_snapshot(*key, usage) for key, usage in totals.items()), key=_order)


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


def page_of(
    rows: Iterable[UsageRow], query: UsageQuery, limit: int, next_key: str | None
) -> tuple[list[UsageSnapshot], str | None]:
    """At most ``limit`` snapshots after ``next_key``, and the key of the page after them."""
    last = _parse_key(next_key)
    rest = (each for each in snapshots(rows, query) if last is None or _order(each) > last)
    limit = min(limit, MAX_PAGE)
    found = list(islice(rest, limit + 1))
    if len(found) <= limit:
        return found, None
    return found[:limit], DELIMITER.join(_order(found[limit - 1]))


def _parse_key(next_key: str | None) -> tuple[str, ...] | None:
    if next_key is None:
        return None
    if not isinstance(next_key, str) or next_key.count(DELIMITER) != 3:
        raise ValidationError("next_key", next_key, "must be what the previous page returned")
    return tuple(next_key.split(DELIMITER))


def _order(each: UsageSnapshot) -> tuple[str, ...]:
    return each.window_start, each.window_type, each.entity_id, each.resource


def summary_of(rows: Iterable[UsageRow], query: UsageQuery) -> UsageSummary:
    """Totals, and averages per window."""
    total: dict[str, int] = {}
    count, first, last = 0, None, None
    for each in snapshots(rows, query):
        count, first, last = count + 1, first or each.window_start, each.window_start
        for name, amount in each.counters.items():
            total[name] = total.get(name, 0) + amount
    return UsageSummary(
        snapshot_count=count,
        total=total,
        average={name: amount / count for name, amount in total.items()},
        min_window_start=first,
        max_window_start=last,
    )
