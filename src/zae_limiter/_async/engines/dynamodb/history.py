"""The ports of audit events and usage."""

from __future__ import annotations

import heapq

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.context import TableContext
from zae_limiter._async.engines.dynamodb.partitions import Unordered
from zae_limiter._async.engines.dynamodb.requests import Query, batch_get
from zae_limiter._async.engines.dynamodb.usage_hours import (
    HourRange,
    Subject,
    UsageHours,
    usage_hours,
)
from zae_limiter.dynamodb.items import audit
from zae_limiter.dynamodb.items.attributes import s
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.usage import UsageRanking, UsageSnapshot, UsageSummary, WindowType
from zae_limiter.usage.ranking import TopUsage
from zae_limiter.usage.report import UsagePage, UsageQuery, UsageTotal, window_end

MAX_QUERY_PAGE = 1000  # items of one Query: about what fits into its 1 MB
END_OF_IDS = "~"  # sorts after every event id


class DynamoAudit:
    """The audit log; events expire by their TTL."""

    def __init__(self, context: TableContext) -> None:
        self._client = context.client
        self._parallel = context.parallel

    async def events(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Return the newest events of a subject, or of all subjects if ``entity_id`` is None."""
        if entity_id is None:
            return await self._of_all_subjects(namespace_id, before_event_id, limit)
        condition, bound = "PK = :pk AND begins_with(SK, :sk)", schema.sk_audit("")
        if before_event_id is not None:
            condition, bound = "PK = :pk AND SK < :sk", schema.sk_audit(before_event_id)
        query = Query(
            self._client,
            condition,
            {":pk": s(schema.pk_audit(namespace_id, entity_id)), ":sk": s(bound)},
            newest_first=True,
            page_size=min(limit, MAX_QUERY_PAGE),
        )
        return [audit.decode(item) for item in await query.all(limit)]

    async def _of_all_subjects(
        self, namespace_id: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Read the keys of all events, as no index sorts them by time, then the newest events."""
        end = END_OF_IDS if before_event_id is None else before_event_id
        bounds = {":first": s(schema.sk_audit("")), ":end": s(schema.sk_audit(end))}
        queries = [
            Query(
                self._client,
                "GSI4PK = :partition",
                {":partition": s(partition), **bounds},
                index="GSI4",
                only="SK > :first AND SK < :end",
            )
            for partition in schema.gsi4_partitions(namespace_id)
        ]
        events, newest = Unordered(queries, self._parallel), list[Key]()
        while not events.is_over:
            page = [Key.of(item) for item in await events.page()]
            newest = heapq.nlargest(limit, newest + page, key=lambda key: key.sk)
        items = await batch_get(self._client, newest, consistent=True)
        return [audit.decode(items[key]) for key in newest if key in items]


class DynamoUsage:
    """Usage windows, added up from stored and live hours."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        query: UsageQuery,
        *,
        limit: int,
        next_key: str | None,
    ) -> tuple[list[UsageSnapshot], str | None]:
        page = UsagePage(query, limit, next_key)
        # The index of a resource is sorted by hour and entity, so a page may begin at an entity.
        is_sorted = entity_id is None and query.windows == (WindowType.HOURLY,)
        hours = await usage_hours(
            self._context,
            Subject(namespace_id, entity_id, resource),
            HourRange(
                page.first_hour,
                query.last_hour,
                _hours_per_page(query, limit),
                page.first_entity if is_sorted else "",
            ),
            page,
        )
        while rows := await hours.next():
            if page.add(rows) or (is_sorted and page.is_full):
                break
        return page.end()

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        total = UsageTotal(query, each_token_once=entity_id is None)
        hours = await self._all(Subject(namespace_id, entity_id, resource), query)
        while rows := await hours.next():
            total.add(rows)
        return total.end()

    async def top(
        self, namespace_id: str, resource: str | None, query: UsageQuery, by: str | None, limit: int
    ) -> UsageRanking:
        top = TopUsage(query, by, limit)
        while top.begin_pass():
            hours = await self._all(Subject(namespace_id, None, resource), query)
            while rows := await hours.next():
                top.add(rows)
        return top.end()

    async def _all(self, subject: Subject, query: UsageQuery) -> UsageHours:
        return await usage_hours(
            self._context, subject, HourRange(query.start_hour, query.last_hour)
        )


def _hours_per_page(query: UsageQuery, limit: int) -> int:
    """Return the approximate number of hours of one bucket that a page needs, plus one."""
    shortest = min(window_end(window, 0) for window in query.windows)
    return (limit + 1) * shortest + 1
