"""Audit events and usage.

Each event is written in the transaction of the change that it reports. Usage of closed hours comes
from their rows, that of the open hour from the buckets themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zae_limiter.admission.usage import BucketHour, open_window
from zae_limiter.embedded.tables import BucketRow, Listing, Tables, refuse_if_purging
from zae_limiter.models.audit import AuditAction, AuditedChange, AuditEvent
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
from zae_limiter.usage_report import END_OF_TIME, UsagePage, UsageQuery, UsageTotal

DAY = 24  # hours: windows never reach beyond a day
PAGE = 1000  # events of one read


def record(
    tables: Tables,
    namespace_id: str,
    change: AuditedChange,
    action: AuditAction,
    details: dict[str, Any] | None = None,
) -> None:
    """Append one event; raises NamespaceStateError if the namespace is being purged."""
    refuse_if_purging(tables, namespace_id)
    tables.add_audit(namespace_id, change.event(action, details))


def events(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    before_event_id: str | None,
    limit: int,
) -> Listing[list[AuditEvent]]:
    """List the events of one subject, or of all subjects, newest first."""
    listed: list[AuditEvent] = []
    while len(listed) < limit:
        wanted = min(PAGE, limit - len(listed))
        page = tables.audit(namespace_id, entity_id, before_event_id, wanted)
        listed += page
        if len(page) < wanted:
            break
        before_event_id = page[-1].event_id
        yield
    return listed


def usage_page(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    query: UsageQuery,
    *,
    limit: int,
    next_key: str | None,
) -> Listing[tuple[list[UsageSnapshot], str | None]]:
    """Return one page of windows, oldest first, and the key of the next page."""
    page = UsagePage(query, limit, next_key)
    for day in usage_days(tables, namespace_id, entity_id, resource, query):
        if day is None:
            yield
        elif page.add(day):
            break
    return page.end()


def usage_summary(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    query: UsageQuery,
) -> Listing[UsageSummary]:
    """Return totals over all windows of the query."""
    total = UsageTotal(query)
    for day in usage_days(tables, namespace_id, entity_id, resource, query):
        if day is None:
            yield
        else:
            total.add(day)
    return total.end()


def usage_days(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    query: UsageQuery,
) -> Iterator[list[BucketHour] | None]:
    """Iterate over the hours of the query's windows, day by day; None ends a page.

    One hour of one bucket may come twice: from its row and from the bucket itself.
    """
    open_hours = _OpenHours()
    for buckets in tables.bucket_pages(namespace_id, entity_id, resource):
        open_hours.add(buckets, query.start_hour, query.last_hour)
        yield None
    rows: list[BucketHour] = []
    pages = tables.usage_pages(namespace_id, entity_id, resource, query.start_hour, query.last_hour)
    for page in pages:
        for row in page:
            if rows and rows[0].usage.hour // DAY != row.usage.hour // DAY:
                yield from open_hours.days_before(row.usage.hour // DAY, rows)
                rows = []
            open_hours.compare(tables, namespace_id, row)
            rows.append(row)
        yield None
    yield from open_hours.days_before(END_OF_TIME, rows)


class _OpenHours:
    """Usage of windows that were open when their buckets were read.

    A window that is closed before its row is read would be counted twice: a row of the same
    bucket and hour shows that it may have been, and the bucket is then read again.
    """

    def __init__(self) -> None:
        self._by_day: dict[int, dict[tuple[str, str], BucketHour]] = {}

    def add(self, buckets: list[BucketRow], first_hour: int, end_hour: int) -> None:
        for bucket in buckets:
            window = open_window(bucket.image)
            if window is not None and first_hour <= window.hour < end_hour:
                hour = BucketHour(bucket.entity_id, bucket.resource, window)
                self._by_day.setdefault(window.hour // DAY, {})[hour[:2]] = hour

    def compare(self, tables: Tables, namespace_id: str, row: BucketHour) -> None:
        """Read a bucket again, in the transaction that has read this row of it."""
        day, key = self._by_day.get(row.usage.hour // DAY, {}), row[:2]
        if key not in day or day[key].usage.hour != row.usage.hour:
            return
        image = tables.get_bucket(namespace_id, *key)
        window = None if image is None else open_window(image)
        if window is not None and window.hour == row.usage.hour:
            day[key] = BucketHour(*key, window)
        else:
            del day[key]

    def days_before(self, day: int, rows: list[BucketHour]) -> Iterator[list[BucketHour]]:
        """Iterate over the days before ``day``, of which ``rows`` are the last, in order."""
        last = rows[0].usage.hour // DAY if rows else day
        for earlier in sorted(each for each in self._by_day if each < last):
            yield list(self._by_day.pop(earlier).values())
        if rows:
            yield [*rows, *self._by_day.pop(last, {}).values()]
        for later in sorted(each for each in self._by_day if last < each < day):
            yield list(self._by_day.pop(later).values())
