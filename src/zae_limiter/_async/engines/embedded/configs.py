"""Stored limits of the embedded engines."""

from __future__ import annotations

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter.embedded import configs
from zae_limiter.embedded.audit import Change
from zae_limiter.embedded.configs import Level
from zae_limiter.models.config import ConfigSnapshot, LevelConfig, SharedConfig


class EmbeddedConfigs:
    """Each change, its audit event and the version count are one transaction."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def snapshot(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        *,
        shared: SharedConfig | None = None,
        fresh: bool = False,
    ) -> ConfigSnapshot:
        return await self._client.read(configs.snapshot, (namespace_id, entity_id, resource))

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        return await self._client.read(configs.get, (namespace_id, Level(entity_id, resource)))

    async def put(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        config: LevelConfig,
        now_ms: int,
        principal: str | None,
    ) -> None:
        level = Level(entity_id, resource)
        change = Change(level.subject, now_ms, principal, resource or None)
        await self._client.write(configs.put, (namespace_id, level, config, change))

    async def delete(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        level = Level(entity_id, resource)
        change = Change(level.subject, now_ms, principal, resource or None)
        return await self._client.write(configs.delete, (namespace_id, level, change))

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        return await self._client.list(configs.resources_with_defaults, (namespace_id,))

    async def resources_with_entity_configs(self, namespace_id: str) -> list[str]:
        return await self._client.list(configs.resources_with_entity_configs, (namespace_id,))

    async def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        return await self._client.list(
            configs.configured_entities, (namespace_id, resource, after, limit)
        )
