"""Usage and audit log of the embedded engines."""

from __future__ import annotations

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter.embedded import audit, usage
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
from zae_limiter.usage_report import UsageQuery


class EmbeddedUsage:
    """Windows, closed and open."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        query: UsageQuery,
        limit: int,
        next_key: str | None,
    ) -> tuple[list[UsageSnapshot], str | None]:
        return await self._client.list(
            usage.page, (namespace_id, entity_id, resource, query, limit, next_key)
        )

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        return await self._client.list(usage.summary, (namespace_id, entity_id, resource, query))


class EmbeddedAudit:
    """Events, newest first."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def events(
        self, namespace_id: str, entity_id: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        return await self._client.list(
            audit.events, (namespace_id, entity_id, before_event_id, limit)
        )
