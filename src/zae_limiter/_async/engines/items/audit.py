"""The port of audit events."""

from __future__ import annotations

import heapq
from typing import Any

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.requests import Query, batch_get
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.partitions import Unordered
from zae_limiter.items.stored import audit
from zae_limiter.items.stored.attributes import s
from zae_limiter.items.stored.keys import Key
from zae_limiter.models.audit import AuditAction, AuditedChange, AuditEvent

MAX_QUERY_PAGE = 1000  # items of one Query: about what fits into its 1 MB
END_OF_IDS = "~"  # sorts after every event id


class DynamoAudit:
    """The audit log; events expire by their TTL."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._client = context.client
        self._parallel = context.parallel

    async def record(
        self,
        namespace_id: str,
        change: AuditedChange,
        action: AuditAction,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Write an event that reports no change of the store; its id makes it repeatable."""
        await self._context.refuse_if_purging(namespace_id)
        item = audit.encode(namespace_id, change.event(action, details), self._context.audit_days)
        await self._client.call("PutItem", {"Item": item}, repeatable=True)

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
