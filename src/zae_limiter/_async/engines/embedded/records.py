"""The ports of the embedded engines, except that of buckets.

Every method runs an operation of ``zae_limiter.embedded``, which reads, decides and writes.
"""

from __future__ import annotations

from zae_limiter._async.engines.embedded.client import Port, lists, reads, writes
from zae_limiter.admission.configuration import Revised
from zae_limiter.clock import Deadline
from zae_limiter.embedded import configs, entities, history, namespaces
from zae_limiter.models.audit import AuditedChange
from zae_limiter.models.config import (
    ConfigLevel,
    ConfigSnapshot,
    LevelChange,
    LevelConfig,
    SharedConfig,
)
from zae_limiter.models.entity import Entity


class EmbeddedConfigs(Port):
    """Stored limits: a change, its audit event and the version count are one transaction."""

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

    async def change(
        self, namespace_id: str, change: LevelChange, *, now_ms: int, principal: str | None
    ) -> Revised[LevelConfig]:
        audited = AuditedChange.of_level(principal, change.level, now_ms)
        return await self._client.write(configs.change, (namespace_id, change, audited))

    get_many = lists(configs.get_many)
    write = writes(configs.write)
    resources_with_defaults = lists(configs.resources_with_defaults)
    resources_with_entity_configs = lists(configs.resources_with_entity_configs)
    configured_entities = lists(configs.configured_entities)


class EmbeddedEntities(Port):
    """Entities: a change and its audit event are one transaction."""

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        change = AuditedChange.by(principal, entity.id, now_ms)
        await self._client.write(entities.create, (namespace_id, entity, change))

    get = reads(entities.get)
    get_many = lists(entities.get_many)
    page = lists(entities.page)

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        children, _ = await self.page(namespace_id, parent_id, "", None)
        return children

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


class EmbeddedNamespaces(Port):
    """Namespaces: each step is one transaction; a purge is many, and can be resumed."""

    register = writes(namespaces.register)
    find = reads(namespaces.find)
    all = reads(namespaces.listing)
    soft_delete = writes(namespaces.soft_delete)
    recover = writes(namespaces.recover)
    begin_purge = writes(namespaces.begin_purge)
    purge_batch = writes(namespaces.purge_batch)
    finish_purge = writes(namespaces.finish_purge)


class EmbeddedUsage(Port):
    """Usage by the hour, closed and open."""

    read = lists(history.read_usage)


class EmbeddedAudit(Port):
    """Audit events, newest first."""

    record = writes(history.record)
    events = lists(history.events)


class EmbeddedDocuments(Port):
    """Small JSON documents by key."""

    get = reads(namespaces.get_document)
    put = writes(namespaces.put_document)
    replace = writes(namespaces.replace_document)
