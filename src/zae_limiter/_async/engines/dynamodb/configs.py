"""Stored limits."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.reading import (
    Found,
    Query,
    batch_get,
    get_at_once,
    get_item,
)
from zae_limiter._async.engines.dynamodb.store import Primer, Store
from zae_limiter._async.engines.dynamodb.transactions import Plan
from zae_limiter.models.audit import AuditAction
from zae_limiter.models.config import ConfigSnapshot, LevelConfig, SharedConfig
from zae_limiter.naming import DEFAULT_RESOURCE

# sync: from zae_limiter.concurrency.shield import shield
from zae_limiter.records.dynamodb import actions, configs, entities, keys, registries
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.attributes import Item, s, text
from zae_limiter.records.dynamodb.audit import Change
from zae_limiter.records.dynamodb.configs import Level
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.transport.deadline import Deadline

__all__ = ["DynamoConfigs", "Primer"]

SYSTEM = Level("", "")


class DynamoConfigs:
    """One item per level. Each change, its audit event and the version are one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = store.client

    # --- what applies

    async def snapshot(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        *,
        shared: SharedConfig | None = None,
        fresh: bool = False,
    ) -> ConfigSnapshot:
        """Everything that decides an (entity, resource).

        ``shared`` is what a read for another entity on the resource has found a moment ago, and
        saves reading it. ``fresh``: all of it now, as it stands at one moment. Otherwise in one
        cheap read, with the bucket, that may be a moment behind unless this client has just
        changed something.
        """
        meta, bucket = keys.entity(namespace_id, entity_id), None
        wanted = [meta, *(level.key(namespace_id) for level in _own(entity_id, resource))]
        if shared is None or fresh:
            shared = None
            wanted += (level.key(namespace_id) for level in _common(resource))
        if fresh:
            found = await get_at_once(self._client, wanted)
        else:
            bucket = keys.bucket(namespace_id, entity_id, resource)
            found = await batch_get(
                self._client,
                [*wanted, bucket],
                consistent=self._store.own_writes.is_recent(namespace_id),
            )
        what = namespace_id, entity_id, resource, found, shared, bucket
        return self._seen(*what)  # unasync: remove
        # sync: return shield(lambda: self._seen(*what))

    def _seen(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        found: Found,
        shared: SharedConfig | None,
        bucket: Key | None,
    ) -> ConfigSnapshot:
        item = found.get(keys.entity(namespace_id, entity_id))
        entity = None if item is None else entities.decode(item)
        self._store.primer.saw_entity(namespace_id, entity_id, entity)
        if bucket is not None:
            self._store.primer.saw_bucket(namespace_id, entity_id, resource, found.get(bucket))
        own = [
            configs.decode(found.get(each.key(namespace_id))) for each in _own(entity_id, resource)
        ]
        common = shared or _shared(namespace_id, resource, found)
        return ConfigSnapshot(
            version=common.version,
            entity=entity,
            entity_resource=own[0],
            entity_default=own[1],
            resource=common.resource,
            system=common.system,
        )

    # --- one level

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        key = Level(entity_id, resource).key(namespace_id)
        return configs.decode(await get_item(self._client, key))

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
        change = Change.by(principal, level.subject, now_ms, resource or None)

        async def plan(deadline: Deadline) -> Plan[None]:
            before = await get_item(self._client, level.key(namespace_id), deadline)
            details = {**config.to_dict(), "previous": configs.described(before)}
            log = self._store.log(namespace_id, change, AuditAction.LIMITS_SET, details)
            writes = _put(namespace_id, level, config, before, change.event_id)
            return Plan(None, [*writes, log], change.event_id)

        await self._store.commit(namespace_id, plan)

    async def delete(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        level = Level(entity_id, resource)
        change = Change.by(principal, level.subject, now_ms, resource or None)
        key, registry = level.key(namespace_id), _registry(namespace_id, level)

        async def plan(deadline: Deadline) -> Plan[bool]:
            found = await batch_get(
                self._client, [key, registry], consistent=True, deadline=deadline
            )
            before = found.get(key)
            if before is None or not configs.holds_limits(before):
                return Plan(False, [])
            details = {"previous": configs.described(before)}
            log = self._store.log(namespace_id, change, AuditAction.LIMITS_DELETED, details)
            writes = _delete(namespace_id, level, before, found.get(registry))
            return Plan(True, [*writes, log])

        return await self._store.commit(namespace_id, plan)

    # --- listings

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        return registries.listed(await get_item(self._client, keys.resources(namespace_id)))

    async def resources_with_entity_configs(self, namespace_id: str) -> list[str]:
        key = keys.entity_config_resources(namespace_id)
        return registries.listed(await get_item(self._client, key))

    async def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        condition = "GSI3PK = :pk"
        values = {":pk": s(schema.gsi3_pk_entity_config(namespace_id, resource))}
        if after:
            condition += " AND GSI3SK > :after"
            values[":after"] = s(schema.gsi3_sk_entity_config(after))
        query = Query(self._client, condition, values, index="GSI3", page_size=limit)
        return [text(item["GSI3SK"]) for item in await query.all(limit)]


def _own(entity_id: str, resource: str) -> tuple[Level, Level]:
    """The levels that belong to an entity, the stronger first."""
    return Level(entity_id, resource), Level(entity_id, DEFAULT_RESOURCE)


def _common(resource: str) -> tuple[Level, Level]:
    return Level("", resource), SYSTEM


def _shared(namespace_id: str, resource: str, found: Found) -> SharedConfig:
    of_resource, of_system = (found.get(each.key(namespace_id)) for each in _common(resource))
    return SharedConfig(
        configs.decode_version(of_system), configs.decode(of_resource), configs.decode(of_system)
    )


def _registry(namespace_id: str, level: Level) -> Key:
    if level.entity_id:
        return keys.entity_config_resources(namespace_id)
    return keys.resources(namespace_id)


def _put(
    namespace_id: str, level: Level, config: LevelConfig, before: Item | None, revision: str
) -> list[Action]:
    if level.is_system:
        return [actions.update(configs.system_update(namespace_id, before, config, revision))]
    writes = [
        actions.put(configs.encode(namespace_id, level, config, revision), before),
        actions.update(configs.version_bump(namespace_id)),
    ]
    if before is None or not configs.holds_limits(before):
        registry = _registry(namespace_id, level)
        writes.append(actions.update(registries.added(registry, namespace_id, level.resource)))
    return writes


def _delete(namespace_id: str, level: Level, before: Item, registry: Item | None) -> list[Action]:
    if level.is_system:
        return [actions.update(configs.system_update(namespace_id, before, None, ""))]
    writes = [actions.delete(before), actions.update(configs.version_bump(namespace_id))]
    removed = registries.removed(_registry(namespace_id, level), registry, [level.resource])
    if removed is not None:
        writes.append(actions.update(removed))
    return writes
