"""The audit log."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.reading import Query
from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter.models.audit import AuditEvent
from zae_limiter.records.dynamodb import audit
from zae_limiter.records.dynamodb.attributes import s

MOST_OF_A_PAGE = 1000


class DynamoAudit:
    """Events, newest first."""

    def __init__(self, store: Store) -> None:
        self._client = store.client

    async def events(
        self, namespace_id: str, entity_id: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        condition, bound = "PK = :pk AND begins_with(SK, :sk)", schema.sk_audit("")
        if before_event_id is not None:
            condition, bound = "PK = :pk AND SK < :sk", schema.sk_audit(before_event_id)
        query = Query(
            self._client,
            condition,
            {":pk": s(schema.pk_audit(namespace_id, entity_id)), ":sk": s(bound)},
            newest_first=True,
            page_size=min(limit, MOST_OF_A_PAGE),
        )
        return [audit.decode(item) for item in await query.all(limit)]
