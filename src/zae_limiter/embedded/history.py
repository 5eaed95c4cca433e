"""Audit events and usage.

Each event is written in the transaction of the change that it reports. Usage of closed hours comes
from their rows, that of the open hour from the buckets themselves.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from zae_limiter.admission.usage import BucketHour, open_window
from zae_limiter.embedded.tables import Tables
from zae_limiter.models.audit import AuditAction, AuditedChange, AuditEvent
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
from zae_limiter.usage_report import UsageQuery, page_of, summary_of


def record(
    tables: Tables,
    namespace_id: str,
    change: AuditedChange,
    action: AuditAction,
    details: dict[str, Any] | None = None,
) -> None:
    """Append one event."""
    tables.add_audit(namespace_id, change.event(action, details))


def events(
    tables: Tables, namespace_id: str, entity_id: str, before_event_id: str | None, limit: int
) -> list[AuditEvent]:
    """List the events of one subject, newest first."""
    return tables.audit(namespace_id, entity_id, before_event_id, limit)


def usage_page(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    query: UsageQuery,
    *,
    limit: int,
    next_key: str | None,
) -> tuple[list[UsageSnapshot], str | None]:
    """Return one page of windows, oldest first, and the key of the next page."""
    rows = usage_hours(tables, namespace_id, entity_id, resource, query)
    return page_of(rows, query, limit, next_key)


def usage_summary(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    query: UsageQuery,
) -> UsageSummary:
    """Return totals over all windows of the query."""
    rows = usage_hours(tables, namespace_id, entity_id, resource, query)
    return summary_of(rows, query)


def usage_hours(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    query: UsageQuery,
) -> Iterator[BucketHour]:
    """Iterate over all hours of the query's windows by time.

    One hour of one bucket may come twice: from its row and from the bucket itself.
    """
    first, end = query.start_hour, query.last_hour
    still_open = []
    for bucket in tables.buckets(namespace_id, entity_id, resource):
        window = open_window(bucket.image)
        if window is not None and first <= window.hour < end:
            still_open.append(BucketHour(bucket.entity_id, bucket.resource, window))
    closed = tables.usage(namespace_id, entity_id, resource, first, end)
    return heapq.merge(closed, sorted(still_open, key=_hour), key=_hour)


def _hour(row: BucketHour) -> int:
    return row.usage.hour
