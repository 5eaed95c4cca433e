"""The ports of audit events and usage. A page of usage reads no more hours than it needs."""

from __future__ import annotations

import heapq

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.context import TableContext
from zae_limiter._async.engines.dynamodb.requests import Query, batch_get
from zae_limiter._async.engines.dynamodb.usage_hours import DAY, HourRange, MergedDays, merged_days
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import BucketHour
from zae_limiter.dynamodb.items import audit
from zae_limiter.dynamodb.items.attributes import s
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.timestamps import ms_from_iso
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
from zae_limiter.usage_report import DELIMITER, HOURS, MAX_PAGE, UsageQuery, page_of, summary_of

MAX_QUERY_PAGE = 1000  # items of one Query: about what fits into its 1 MB
END_OF_IDS = "~"  # sorts after every event id


class DynamoAudit:
    """The audit log; events expire by their TTL."""

    def __init__(self, context: TableContext) -> None:
        self._client = context.client

    async def events(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
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
        """Read the keys of all events, since no index has them by time, then the newest events."""
        first = schema.sk_audit("")
        last = schema.sk_audit(END_OF_IDS if before_event_id is None else before_event_id)
        query = Query(
            self._client,
            "GSI4PK = :namespace",
            {
                ":namespace": s(schema.gsi4_pk_namespace(namespace_id)),
                ":first": s(first),
                ":last": s(last),
            },
            index="GSI4",
            only="SK > :first AND SK < :last",
        )
        newest: list[Key] = []
        while not query.is_over:
            page = [Key.of(item) for item in await query.page()]
            newest = heapq.nlargest(limit, newest + page, key=lambda key: key.sk)
        items = await batch_get(self._client, newest, consistent=True)
        return [audit.decode(items[key]) for key in newest if key in items]


class DynamoUsage:
    """Usage windows, added up from the stored hours."""

    def __init__(self, context: TableContext) -> None:
        self._client = context.client

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
        page_of((), query, limit, next_key)  # raises for a malformed key before anything is read
        first = query.start_hour if next_key is None else _hour_of(next_key)
        first = max(first, query.start_hour)
        hours = HourRange(first, query.last_hour, _hours_per_page(query, limit))
        days = await self._days(namespace_id, entity_id, resource, hours)
        rows: list[BucketHour] = []
        windows = 0
        while windows <= limit and (day := await days.next()):
            rows += day
            windows += len(page_of(day, query, MAX_PAGE, next_key)[0])
        return page_of(rows, query, limit, next_key)

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        hours = HourRange(query.start_hour, query.last_hour)
        days = await self._days(namespace_id, entity_id, resource, hours)
        total = summary_of((), query)
        while day := await days.next():
            total = _sum(total, summary_of(day, query))
        return total

    async def _days(
        self, namespace_id: str, entity_id: str | None, resource: str | None, hours: HourRange
    ) -> MergedDays:
        return await merged_days(self._client, namespace_id, entity_id, resource, hours)


def _hours_per_page(query: UsageQuery, limit: int) -> int:
    """Return how many hours of one bucket a page may need; its last day is read to the end."""
    shortest = min(HOURS[window] for window in query.windows)
    return min((limit + 1) * shortest + DAY, MAX_QUERY_PAGE)


def _hour_of(next_key: str) -> int:
    """Return where the next page starts; its windows start no earlier than the last one seen."""
    return ms_from_iso(next_key.partition(DELIMITER)[0], "next_key") // HOUR_MS


def _sum(total: UsageSummary, later: UsageSummary) -> UsageSummary:
    """Add a later summary, which has no window in common with ``total``."""
    counts = dict(total.total)
    for name, amount in later.total.items():
        counts[name] = counts.get(name, 0) + amount
    windows = total.snapshot_count + later.snapshot_count
    return UsageSummary(
        snapshot_count=windows,
        total=counts,
        average={name: amount / windows for name, amount in counts.items()},
        min_window_start=total.min_window_start or later.min_window_start,
        max_window_start=later.max_window_start or total.max_window_start,
    )
