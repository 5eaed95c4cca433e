"""Audit events and usage.

Each event is written in the transaction of the change that it reports. Usage of closed hours is
read from rows, usage of the open hour from the buckets themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.usage import BucketHour, HourUsage, open_hour, without_holds
from zae_limiter.embedded.retention import stored_retention
from zae_limiter.embedded.tables import (
    BucketKey,
    BucketRow,
    Listing,
    Tables,
    refuse_if_purging,
)
from zae_limiter.models.audit import AuditAction, AuditedChange, AuditEvent
from zae_limiter.usage.report import END_OF_TIME, UsageReport

PAGE = 1000  # events that are read at a time


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


def read_usage(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    report: UsageReport,
) -> Listing[None]:
    """Add the hours of a query to a report, until it needs no more."""
    span, now_ms = (report.first_hour, report.query.last_hour), report.query.now_ms
    for hours in usage_hours(tables, namespace_id, entity_id, resource, span, now_ms):
        if hours is None:
            yield
        else:
            report.add(hours)
            if report.is_complete(hours[-1].usage.hour):
                break


def usage_hours(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    span: tuple[int, int],
    now_ms: int = 0,
) -> Iterator[list[BucketHour] | None]:
    """Iterate over the hours from the first to before the last, in order; None ends a page.

    An hour of a bucket may come twice: from its row, and from the bucket itself. A store that keeps
    usage for 0 days has no hours. What has expired by ``now_ms`` is not held, and no usage.
    """
    if stored_retention(tables) == 0:
        return
    open_hours = _OpenHours(now_ms)
    for buckets in tables.bucket_pages(namespace_id, entity_id, resource):
        open_hours.add(buckets, *span)
        yield None
    for page in tables.usage_pages(namespace_id, entity_id, resource, *span):
        for hour, rows in groupby(page, key=lambda row: row.usage.hour):
            yield from open_hours.before(hour)
            of_hour = list(rows)
            for row in of_hour:
                open_hours.compare(tables, namespace_id, row)
            yield of_hour
        yield None
    yield from open_hours.before(END_OF_TIME)


class _OpenHours:
    """Usage of hours that were open when their buckets were read.

    An hour that is closed before its row is read would be counted twice. A row of the same bucket
    and hour shows this possibility, and then the bucket is read again.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._by_hour: dict[int, dict[BucketKey, BucketHour]] = {}

    def add(self, buckets: list[BucketRow], first_hour: int, end_hour: int) -> None:
        for bucket in buckets:
            usage = self._open(bucket.image)
            if first_hour <= usage.hour < end_hour and not usage.is_empty:
                hour = BucketHour(bucket.entity_id, bucket.resource, usage)
                self._by_hour.setdefault(usage.hour, {})[hour[:2]] = hour

    def compare(self, tables: Tables, namespace_id: str, row: BucketHour) -> None:
        """Read a bucket again, in the transaction that has read its row."""
        hours, key = self._by_hour.get(row.usage.hour, {}), row[:2]
        if key not in hours:
            return
        image = tables.get_bucket(namespace_id, *key)
        usage = None if image is None else self._open(image)
        if usage is not None and usage.hour == row.usage.hour and not usage.is_empty:
            hours[key] = BucketHour(*key, usage)
        else:
            del hours[key]

    def _open(self, image: BucketImage) -> HourUsage:
        return open_hour(without_holds(image, self._now_ms)).rounded_down()

    def before(self, hour: int) -> Iterator[list[BucketHour]]:
        """Iterate over the open hours before ``hour``, whose rows have all been read."""
        for earlier in sorted(each for each in self._by_hour if each < hour):
            yield list(self._by_hour.pop(earlier).values())
