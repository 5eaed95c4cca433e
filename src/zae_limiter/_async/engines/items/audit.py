"""The port of audit events."""

from __future__ import annotations

import heapq
from typing import Any

from zae_limiter import schema
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.partitions import Unordered
from zae_limiter.items.stored import audit
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.query import BEFORE, PREFIX, ItemQuery, Range
from zae_limiter.models.audit import AuditAction, AuditedChange, AuditEvent

MAX_QUERY_PAGE = 1000  # items of one Query: about what fits into its 1 MB
END_OF_IDS = "~"  # sorts after every event id


class ItemAudit:
    """The audit log; events expire by their TTL."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._store = context.store
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
        await self._store.put(item)

    async def events(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Return the newest events of a subject, or of all subjects if ``entity_id`` is None."""
        if entity_id is None:
            return await self._of_all_subjects(namespace_id, before_event_id, limit)
        sort = Range(PREFIX, schema.sk_audit(""))
        if before_event_id is not None:
            sort = Range(BEFORE, schema.sk_audit(before_event_id))
        query = ItemQuery(
            schema.pk_audit(namespace_id, entity_id),
            sort,
            newest_first=True,
            page_size=min(limit, MAX_QUERY_PAGE),
        )
        return [audit.decode(item) for item in await self._store.query(query).all(limit)]

    async def _of_all_subjects(
        self, namespace_id: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Read the keys of all events, as no index sorts them by time, then the newest events."""
        end = END_OF_IDS if before_event_id is None else before_event_id
        bounds = schema.sk_audit(""), schema.sk_audit(end)
        queries = [
            self._store.query(ItemQuery(partition, index_name="GSI4", only_between=bounds))
            for partition in schema.gsi4_partitions(namespace_id)
        ]
        events, newest = Unordered(queries, self._parallel), list[Key]()
        while not events.is_over:
            page = [Key.of(item) for item in await events.page()]
            newest = heapq.nlargest(limit, newest + page, key=lambda key: key.sk)
        items = await self._store.get_several(newest, consistent=True)
        return [audit.decode(items[key]) for key in newest if key in items]
