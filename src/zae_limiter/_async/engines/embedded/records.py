"""The ports for configuration, entities and namespaces of the embedded engines.

Every method forwards to an operation of ``zae_limiter.embedded``, which reads, decides and writes.
What each promises is said in ``zae_limiter._async.ports``.
"""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter.clock import Deadline
from zae_limiter.embedded import (
    configs,
    entities,
    namespaces,
)
from zae_limiter.models.audit import AuditedChange, config_subject
from zae_limiter.models.batch import ConfigBatch
from zae_limiter.models.config import (
    ConfigLevel,
    ConfigSnapshot,
    LevelConfig,
    SharedConfig,
    StoredLevel,
)
from zae_limiter.models.entity import Entity, Namespace


class EmbeddedConfigs:
    """Stored limits: a change, its audit event and the version count are one transaction."""

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
        deadline: Deadline | None = None,
    ) -> ConfigSnapshot:
        return await self._client.read(
            configs.snapshot, (namespace_id, entity_id, resource), deadline
        )

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        return await self._client.read(
            configs.get, (namespace_id, ConfigLevel(entity_id, resource))
        )

    async def put(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        config: LevelConfig,
        now_ms: int,
        principal: str | None,
        if_missing: bool = False,
    ) -> StoredLevel:
        level = ConfigLevel(entity_id, resource)
        change = AuditedChange.by(principal, config_subject(level), now_ms, resource or None)
        return await self._client.write(
            configs.put, (namespace_id, level, config, change, if_missing)
        )

    async def delete(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        level = ConfigLevel(entity_id, resource)
        change = AuditedChange.by(principal, config_subject(level), now_ms, resource or None)
        return await self._client.write(configs.delete, (namespace_id, level, change))

    async def get_many(
        self, namespace_id: str, levels: Sequence[ConfigLevel]
    ) -> dict[ConfigLevel, LevelConfig]:
        return await self._client.list(configs.get_many, (namespace_id, levels))

    async def write(self, namespace_id: str, batch: ConfigBatch, *, now_ms: int) -> int | None:
        return await self._client.write(configs.write, (namespace_id, batch, now_ms))

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


class EmbeddedEntities:
    """Entities: a change and its audit event are one transaction."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        change = AuditedChange.by(principal, entity.id, now_ms)
        await self._client.write(entities.create, (namespace_id, entity, change))

    async def get(self, namespace_id: str, entity_id: str) -> Entity | None:
        return await self._client.read(entities.get, (namespace_id, entity_id))

    async def get_many(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        return await self._client.list(entities.get_many, (namespace_id, entity_ids))

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        children, _ = await self.page(namespace_id, parent_id, "", None)
        return children

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> tuple[list[Entity], str | None]:
        return await self._client.list(entities.page, (namespace_id, parent_id, after, limit))

    async def set_parent(
        self,
        namespace_id: str,
        entity_id: str,
        parent_id: str | None,
        *,
        cascade: bool,
        now_ms: int,
        principal: str | None,
    ) -> Entity | None:
        change = AuditedChange.by(principal, entity_id, now_ms)
        return await self._client.write(
            entities.set_parent, (namespace_id, change, parent_id, cascade)
        )

    async def delete(
        self, namespace_id: str, entity_id: str, now_ms: int, principal: str | None
    ) -> bool:
        change = AuditedChange.by(principal, entity_id, now_ms)
        return await self._client.write(entities.delete, (namespace_id, change))


class EmbeddedNamespaces:
    """Namespaces: each step is one transaction; a purge is many, and can be resumed."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None = None
    ) -> dict[str, str]:
        return await self._client.write(namespaces.register, (names, now_ms, principal))

    async def find(self, name: str) -> Namespace | None:
        return await self._client.read(namespaces.find, (name,))

    async def all(self) -> list[Namespace]:
        return await self._client.read(namespaces.listing, ())

    async def soft_delete(self, name: str, now_ms: int, principal: str | None = None) -> str:
        return await self._client.write(namespaces.soft_delete, (name, now_ms, principal))

    async def recover(self, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
        return await self._client.write(namespaces.recover, (namespace_id, now_ms, principal))

    async def begin_purge(self, namespace_id: str) -> int:
        return await self._client.write(namespaces.begin_purge, (namespace_id,))

    async def purge_batch(self, namespace_id: str, limit: int) -> int:
        return await self._client.write(namespaces.purge_batch, (namespace_id, limit))

    async def finish_purge(
        self, namespace_id: str, now_ms: int, principal: str | None = None
    ) -> None:
        await self._client.write(namespaces.finish_purge, (namespace_id, now_ms, principal))
