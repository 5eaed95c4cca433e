"""Usage and audit log of the embedded engines."""

from __future__ import annotations

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter._async.ports import HourOfUsage
from zae_limiter.embedded import audit, usage
from zae_limiter.models.audit import AuditEvent


class EmbeddedUsage:
    """Hours, closed and open."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def hours(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        from_hour: int,
        to_hour: int,
    ) -> list[HourOfUsage]:
        rows = await self._client.read(
            usage.hours, (namespace_id, entity_id, resource, from_hour, to_hour)
        )
        return [HourOfUsage(*row) for row in rows]


class EmbeddedAudit:
    """Events, newest first."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def events(
        self, namespace_id: str, entity_id: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        return await self._client.read(
            audit.events, (namespace_id, entity_id, before_event_id, limit)
        )
