"""Admitted and rejected calls of a namespace per hour, read in the background."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter_ops.views.recent_rejections import hourly_usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zae_limiter import SyncRepository
    from zae_limiter.models.usage import UsageSnapshot

HOUR_MS = 3_600_000
HOURS = 48
DAYS = 30
PAGE = 5000
RENEW_S, RENEW_WITH_UNITS_S = 60.0, 300.0
# A namespace with more buckets has so many hours of usage that they are read only on request.
MAX_BUCKETS, MAX_BUCKETS_WITH_UNITS = 5000, 400


@dataclass(slots=True)
class ChartHour:
    """The calls of one hour. ``shadowed`` ones were let through instead of rejected."""

    admitted: int = 0
    rejected: int = 0
    waited: int = 0
    shadowed: int = 0

    def add(self, usage: UsageSnapshot) -> None:
        """Count the calls of one bucket. A call over several buckets is a call of one of them."""
        self.admitted += usage.calls
        self.rejected += usage.rejected_calls
        self.waited += usage.waited
        self.shadowed += usage.shadowed


def counts_by_hour(usages: Iterable[UsageSnapshot]) -> dict[int, ChartHour]:
    """Return the calls of each hour since 1970, from hourly usage of buckets."""
    hours: dict[int, ChartHour] = {}
    for usage in usages:
        start = datetime.fromisoformat(usage.window_start)
        hours.setdefault(int(start.timestamp()) // 3600, ChartHour()).add(usage)
    return hours


class History:
    """The hours of one namespace. Hours that are over are read once."""

    def __init__(self, repository: SyncRepository, costs_units: bool) -> None:
        self._repository = repository
        self._most_buckets = MAX_BUCKETS_WITH_UNITS if costs_units else MAX_BUCKETS
        self._renew_s = RENEW_WITH_UNITS_S if costs_units else RENEW_S
        self._hours: dict[int, ChartHour] = {}
        self._read_from: int | None = None  # the first hour that was read
        self._read_at = 0.0
        self._wanted_hours = HOURS
        self.is_requested = False
        self._lock = threading.Lock()  # held while hours are read
        self._thread: threading.Thread | None = None

    @property
    def is_read(self) -> bool:
        """Whether there is anything to show."""
        return self._read_from is not None

    def is_awaited(self, buckets: int) -> bool:
        """Tell whether the history is read: on request, or because there are few buckets."""
        return self.is_requested or buckets <= self._most_buckets

    def request(self, hours: int = HOURS) -> None:
        """Read the history in a thread of its own, also that of very many buckets."""
        self.is_requested = True
        if hours > self._wanted_hours:
            self._wanted_hours, self._read_from = hours, None
        if self._is_due() and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(
                target=self._read_quietly, name="dashboard history", daemon=True
            )
            self._thread.start()

    def _read_quietly(self) -> None:
        with suppress(ZAELimiterError):  # the board tells about an outage
            self.renew(0)

    def close(self) -> None:
        """Wait a little for a thread that reads."""
        if self._thread is not None:
            self._thread.join(5)

    def _is_due(self) -> bool:
        return self._read_from is None or time.monotonic() - self._read_at >= self._renew_s

    def renew(self, buckets: int) -> None:
        """Read the hours that are missing or have changed, if there are not too many buckets."""
        if not self.is_awaited(buckets):
            return
        with self._lock:
            if not self._is_due():
                return
            this_hour = self._repository.charging.clock() // HOUR_MS
            first = this_hour - self._wanted_hours + 1
            # Counts of the hour before the last may still arrive for a minute.
            begin = first if self._read_from is None else this_hour - 1
            pages = hourly_usage(self._repository, begin, size=PAGE)
            found = counts_by_hour(usage for page in pages for usage in page)
            kept = {hour: each for hour, each in self._hours.items() if first <= hour < begin}
            self._hours, self._read_from = kept | found, first
            self._read_at = time.monotonic()

    def hourly(self, now_ms: int) -> list[tuple[datetime, ChartHour]]:
        """Return the last 48 hours, oldest first; hours without calls are zeros."""
        last = now_ms // HOUR_MS
        hours = range(last - HOURS + 1, last + 1)
        return [(_time(hour), self._hours.get(hour, ChartHour())) for hour in hours]

    def daily(self, now_ms: int) -> list[tuple[datetime, ChartHour]]:
        """Return the last 30 days in UTC, oldest first."""
        today = _time(now_ms // HOUR_MS).replace(hour=0)
        days = {today - timedelta(days=back): ChartHour() for back in range(DAYS - 1, -1, -1)}
        for hour, counts in self._hours.items():
            day = days.get(_time(hour).replace(hour=0))
            if day is not None:
                day.admitted += counts.admitted
                day.rejected += counts.rejected
                day.waited += counts.waited
                day.shadowed += counts.shadowed
        return list(days.items())


def _time(hour: int) -> datetime:
    return datetime.fromtimestamp(hour * 3600, UTC)
