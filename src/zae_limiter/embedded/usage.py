"""Usage: closed hours from their rows, the open hour from the buckets themselves."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from zae_limiter.admission.usage import open_window
from zae_limiter.embedded.tables import Tables, UsageRow
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
from zae_limiter.usage_report import UsageQuery, page_of, summary_of


def page(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    query: UsageQuery,
    limit: int,
    next_key: str | None,
) -> tuple[list[UsageSnapshot], str | None]:
    """One page of windows, oldest first."""
    rows = hours(tables, namespace_id, entity_id, resource, query.start_hour, query.last_hour)
    return page_of(rows, query, limit, next_key)


def summary(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    query: UsageQuery,
) -> UsageSummary:
    """Totals over all windows of the query."""
    rows = hours(tables, namespace_id, entity_id, resource, query.start_hour, query.last_hour)
    return summary_of(rows, query)


def hours(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    first: int,
    end: int,
) -> Iterator[UsageRow]:
    """Hours from ``first`` to before ``end`` in their order; a bucket's hour may come twice."""
    still_open = []
    for bucket in tables.buckets(namespace_id, entity_id, resource):
        window = open_window(bucket.image)
        if window is not None and first <= window.hour < end:
            still_open.append(UsageRow(bucket.entity_id, bucket.resource, window))
    closed = tables.usage(namespace_id, entity_id, resource, first, end)
    return heapq.merge(closed, sorted(still_open, key=_hour), key=_hour)


def _hour(row: UsageRow) -> int:
    return row.usage.hour
