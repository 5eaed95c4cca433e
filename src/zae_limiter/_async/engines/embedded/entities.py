"""Entities of the embedded engines."""

from __future__ import annotations

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter.embedded import entities
from zae_limiter.embedded.audit import Change
from zae_limiter.models.entity import Entity


class EmbeddedEntities:
    """Each change and its audit event are one transaction."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        change = Change(entity.id, now_ms, principal)
        await self._client.write(entities.create, (namespace_id, entity, change))

    async def get(self, namespace_id: str, entity_id: str) -> Entity | None:
        return await self._client.read(entities.get, (namespace_id, entity_id))

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        return await self.page(namespace_id, parent_id, "", None)

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> list[Entity]:
        return await self._client.list(entities.page, (namespace_id, parent_id, after, limit))

    async def delete(
        self, namespace_id: str, entity_id: str, now_ms: int, principal: str | None
    ) -> bool:
        change = Change(entity_id, now_ms, principal)
        return await self._client.write(entities.delete, (namespace_id, change))
