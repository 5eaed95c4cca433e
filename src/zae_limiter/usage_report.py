"""Usage windows as users see them, from hours: a day is the sum of its hours."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import WindowUsage
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso
from zae_limiter.models.usage import UsageSnapshot, UsageSummary, WindowType

HOURS = {WindowType.HOURLY: 1, WindowType.DAILY: 24}
DELIMITER = "#"  # no id or name may contain it
END_OF_TIME = 24 * 366 * 8000  # hours; ISO text has four-digit years


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
    def from_hour(self) -> int:
        return self.start_hour

    @property
    def to_hour(self) -> int:
        """The last window may start just before the end and last a day."""
        return self.end_hour + max(HOURS[window] for window in self.windows) - 1


def snapshots(
    rows: Iterable[tuple[str, str, WindowUsage]], query: UsageQuery
) -> list[UsageSnapshot]:
    """Hours added up into windows, oldest first."""
    totals: dict[tuple[int, WindowType, str, str], WindowUsage] = {}
    for entity_id, resource, usage in rows:
        for window in query.windows:
            start = usage.hour - usage.hour % HOURS[window]
            if query.start_hour <= start < query.end_hour:
                key = (start, window, entity_id, resource)
                known = totals.get(key)
                totals[key] = usage if known is None else known.plus(usage)
    return sorted((_snapshot(*key, usage) for key, usage in totals.items()), key=_order)


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


def page(
    found: list[UsageSnapshot], limit: int, next_key: str | None
) -> tuple[list[UsageSnapshot], str | None]:
    """At most ``limit`` snapshots after ``next_key``, and the key of the page after them."""
    rest = found
    if next_key is not None:
        if not isinstance(next_key, str) or next_key.count(DELIMITER) != 3:
            raise ValidationError("next_key", next_key, "must be what the previous page returned")
        last = tuple(next_key.split(DELIMITER))
        rest = [each for each in found if _order(each) > last]
    more = len(rest) > limit
    return rest[:limit], DELIMITER.join(_order(rest[limit - 1])) if more else None


def _order(each: UsageSnapshot) -> tuple[str, ...]:
    return each.window_start, each.window_type, each.entity_id, each.resource


def summary(found: list[UsageSnapshot]) -> UsageSummary:
    """Totals, and averages per window."""
    total: dict[str, int] = {}
    for each in found:
        for name, amount in each.counters.items():
            total[name] = total.get(name, 0) + amount
    starts = [each.window_start for each in found]
    return UsageSummary(
        snapshot_count=len(found),
        total=total,
        average={name: amount / len(found) for name, amount in total.items()},
        min_window_start=min(starts, default=None),
        max_window_start=max(starts, default=None),
    )
