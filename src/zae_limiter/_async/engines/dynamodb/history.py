"""The ports of audit events and usage. A page of usage reads no more hours than it needs."""

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
from zae_limiter.naming import event_prefix
from zae_limiter.usage.ranking import TopUsage
from zae_limiter.usage.report import UsagePage, UsageQuery, UsageTotal, window_end

MAX_QUERY_PAGE = 1000  # items of one Query: about what fits into its 1 MB
END_OF_IDS = "~"  # sorts after every event id
EVENT_PREFIX = len(event_prefix(0))  # characters of an event id that say its millisecond


class DynamoAudit:
    """The audit log; events expire by their TTL."""

    def __init__(self, context: TableContext) -> None:
        self._client = context.client
        self._parallel = context.parallel

    async def events(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Return the newest events: those of the subject itself, and bundled ones about it."""
        if entity_id is None:
            return await self._of_all_subjects(namespace_id, before_event_id, limit)
        events = await self._own(namespace_id, entity_id, before_event_id, limit)
        if namespace_id != schema.RESERVED_NAMESPACE:  # its changes are not made in batches
            after = events[-1].event_id if len(events) == limit else ""
            span = _Span(after, before_event_id)
            events += await self._bundled(namespace_id, entity_id, span, limit)
        return _newest(events, limit)

    async def _own(
        self, namespace_id: str, subject: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        condition, bound = "PK = :pk AND begins_with(SK, :sk)", schema.sk_audit("")
        if before_event_id is not None:
            condition, bound = "PK = :pk AND SK < :sk", schema.sk_audit(before_event_id)
        query = Query(
            self._client,
            condition,
            {":pk": s(schema.pk_audit(namespace_id, subject)), ":sk": s(bound)},
            newest_first=True,
            page_size=min(limit, MAX_QUERY_PAGE),
        )
        items = await query.all(limit)
        return [event for item in items for event in audit.decode(item)]

    async def _bundled(
        self, namespace_id: str, subject: str, span: _Span, limit: int
    ) -> list[AuditEvent]:
        """Return the newest events about a subject that share items with others."""
        key = schema.pk_audit(namespace_id, audit.bundle_subject(subject))
        query = Query(
            self._client,
            "PK = :pk AND SK BETWEEN :first AND :last",
            {":pk": s(key), ":first": s(span.first), ":last": s(span.last)},
            newest_first=True,
            page_size=min(limit, MAX_QUERY_PAGE),
        )
        events: list[AuditEvent] = []
        while not query.is_over and len(events) < limit:
            decoded = (event for item in await query.page() for event in audit.decode(item))
            events += [
                event for event in decoded if event.entity_id == subject and span.contains(event)
            ]
        return events

    async def _of_all_subjects(
        self, namespace_id: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Read the keys of all events, since no index has them by time, then the newest events.

        A bundle has the key of its newest event, so that none of the newest events is missed. The
        newest of a bundle may be too new although others are not.
        """
        span, bundles = _Span("", before_event_id), schema.pk_audit(namespace_id, audit.BUNDLE)
        queries = [
            Query(
                self._client,
                "GSI4PK = :partition",
                {":partition": s(partition), ":first": s(span.first), ":last": s(span.last)},
                index="GSI4",
                only="SK BETWEEN :first AND :last",
            )
            for partition in schema.gsi4_partitions(namespace_id)
        ]
        events, newest, partly = Unordered(queries, self._parallel), list[Key](), list[Key]()
        while not events.is_over:
            page = [Key.of(item) for item in await events.page()]
            whole = [key for key in page if span.is_whole(key)]
            partly += [key for key in page if not span.is_whole(key) and key.pk.startswith(bundles)]
            newest = heapq.nlargest(limit, newest + whole, key=lambda key: key.sk)
        items = await batch_get(self._client, [*partly, *newest], consistent=True)
        decoded = (event for item in items.values() for event in audit.decode(item))
        return _newest([event for event in decoded if span.contains(event)], limit)


class _Span:
    """Events before an id, or all if it is None, whose keys come after another id."""

    def __init__(self, after_event_id: str, before_event_id: str | None) -> None:
        self._before = before_event_id
        self.first = schema.sk_audit(after_event_id)
        # All events of a bundle are of one millisecond; the newest may be after the bound.
        millisecond = "" if before_event_id is None else before_event_id[:EVENT_PREFIX]
        self.last = schema.sk_audit(millisecond + END_OF_IDS)

    def contains(self, event: AuditEvent) -> bool:
        return self._before is None or event.event_id < self._before

    def is_whole(self, key: Key) -> bool:
        """Whether the newest event of an item is in the span, so that all of them are."""
        return self._before is None or key.sk < schema.sk_audit(self._before)


def _newest(events: list[AuditEvent], limit: int) -> list[AuditEvent]:
    return sorted(events, key=lambda event: event.event_id, reverse=True)[:limit]


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
        # By resource hours are sorted: a page needs no more of an hour than its own entities.
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
    """Return about how many hours of one bucket a page needs, and one more."""
    shortest = min(window_end(window, 0) for window in query.windows)
    return (limit + 1) * shortest + 1
