"""The port of stored limits."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter import schema
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.transactions import TransactionPlan
from zae_limiter.admission.configuration import ConfigBatch, Revised
from zae_limiter.clock import Deadline
from zae_limiter.items.stored import config_writes, configs, entities, keys, registries
from zae_limiter.items.stored import guarded_writes as guarded
from zae_limiter.items.stored.attributes import Item, text
from zae_limiter.items.stored.batches import BatchPlan
from zae_limiter.items.stored.keys import ItemsByKey, Key
from zae_limiter.items.stored.query import AFTER, ItemQuery, Range
from zae_limiter.items.stored.update import ItemWrite
from zae_limiter.models.audit import AuditedChange
from zae_limiter.models.config import (
    ConfigLevel,
    ConfigSnapshot,
    LevelChange,
    LevelConfig,
    SharedConfig,
)
from zae_limiter.models.entity import Entity
from zae_limiter.naming import DEFAULT_RESOURCE


class ItemConfigs:
    """One item per level. Each change, its audit event and the version are one transaction."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._store = context.store

    # --- all levels

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
        """Return all levels for an (entity, resource), the entity, and the version.

        If ``fresh``, all items are read as of one moment, those of ``shared`` included. Otherwise
        one cheap read also brings the bucket for its cache. That read may be a moment behind,
        unless this client has just changed something in the namespace.
        """
        if fresh:
            shared = None
        entity_key = keys.entity(namespace_id, entity_id)
        wanted = [entity_key, *_level_keys(namespace_id, *_own_levels(entity_id, resource))]
        if shared is None:
            wanted += _level_keys(namespace_id, *_shared_levels(resource))
        if fresh:
            items = await self._store.get_at_once(wanted, deadline)
        else:
            items = await self._store.get_several(
                [*wanted, keys.bucket(namespace_id, entity_id, resource)],
                consistent=self._context.recent_changes.is_recent(namespace_id),
                deadline=deadline,
            )
        item = items.get(entity_key)
        entity = None if item is None else entities.decode(item)
        bucket_id = namespace_id, entity_id, resource
        self._notify_cache(bucket_id, entity, items, fresh=fresh)  # unasync: remove
        # sync: from zae_limiter.runtime.finishing import shield
        # sync: shield(lambda: self._notify_cache(bucket_id, entity, items, fresh=fresh))
        own = [
            configs.decode(items.get(key))
            for key in _level_keys(namespace_id, *_own_levels(entity_id, resource))
        ]
        if shared is None:
            shared = _shared_config(namespace_id, resource, items)
            self._context.active_namespaces.note(namespace_id)
        return ConfigSnapshot(
            version=shared.version,
            entity=entity,
            entity_resource=own[0],
            entity_default=own[1],
            resource=shared.resource,
            system=shared.system,
        )

    def _notify_cache(
        self,
        bucket_id: tuple[str, str, str],
        entity: Entity | None,
        items: ItemsByKey,
        *,
        fresh: bool,
    ) -> None:
        listener, (namespace_id, entity_id, _) = self._context.listener, bucket_id
        listener.on_entity_read(namespace_id, entity_id, entity)
        if not fresh:  # a fresh snapshot does not read the bucket
            listener.on_bucket_read(*bucket_id, items.get(keys.bucket(*bucket_id)))

    # --- one level

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        key = configs.key(namespace_id, ConfigLevel(entity_id, resource))
        return configs.decode(await self._store.get(key))

    async def change(
        self, namespace_id: str, change: LevelChange, *, now_ms: int, principal: str | None
    ) -> Revised[LevelConfig]:
        level, audited = change.level, AuditedChange.of_level(principal, change.level, now_ms)
        key, registry = configs.key(namespace_id, level), _registry(namespace_id, level)

        async def plan(deadline: Deadline) -> TransactionPlan[Revised[LevelConfig]]:
            if change.may_delete:  # a deleted level is uncounted
                items = await self._store.get_several(
                    [key, registry], consistent=True, deadline=deadline
                )
                before, counts = items.get(key), items.get(registry)
            else:
                before, counts = await self._store.get(key, deadline), None
            revised = configs.revise(change, before)
            if revised.event is None:
                if not change.deletes_limits:
                    await self._context.refuse_if_purging(namespace_id)
                return TransactionPlan(revised, [])
            writes = _writes(namespace_id, level, before, revised.after, audited.event_id, counts)
            log = self._context.log(namespace_id, audited, *revised.event)
            return TransactionPlan(revised, [*writes, log], audited.event_id)

        return await self._context.commit(namespace_id, plan)

    # --- several levels

    async def get_many(
        self, namespace_id: str, levels: Sequence[ConfigLevel]
    ) -> dict[ConfigLevel, LevelConfig]:
        by_key = {configs.key(namespace_id, level): level for level in levels}
        items = await self._store.get_many(list(by_key))
        decoded = {by_key[key]: configs.decode(item) for key, item in items.items()}
        return {level: config for level, config in decoded.items() if config is not None}

    async def write(self, namespace_id: str, batch: ConfigBatch) -> int | None:
        """Make the changes in one transaction, which is refused while the namespace is purged."""
        planner = BatchPlan(namespace_id, batch, self._context.audit_days)
        places: dict[str, Entity | None] = {}
        await self._context.refuse_if_purging(namespace_id)

        async def plan(deadline: Deadline) -> TransactionPlan[int | None]:
            nonlocal places
            items = await self._store.get_several(
                planner.keys(), consistent=True, deadline=deadline
            )
            if planner.is_refused(items):
                return TransactionPlan(None, [])
            planned = planner.actions(items)
            places = planned.places
            return TransactionPlan(planned.changed, planned.actions)

        count = await self._context.commit(namespace_id, plan)
        for entity_id, entity in places.items():
            self._context.listener.on_entity_read(namespace_id, entity_id, entity)
        return count

    # --- listings

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        registry = await self._store.get(keys.resources(namespace_id))
        return registries.registered_resources(registry)

    async def resources_with_entity_configs(self, namespace_id: str) -> list[str]:
        registry = await self._store.get(keys.entity_config_resources(namespace_id))
        return registries.registered_resources(registry)

    async def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        sort = Range(AFTER, schema.gsi3_sk_entity_config(after)) if after else None
        partition = schema.gsi3_pk_entity_config(namespace_id, resource)
        query = ItemQuery(partition, sort, index_name="GSI3", page_size=limit)
        return [text(item["GSI3SK"]) for item in await self._store.query(query).all(limit)]


def _own_levels(entity_id: str, resource: str) -> tuple[ConfigLevel, ConfigLevel]:
    """Return the levels that belong to an entity, the stronger first."""
    return ConfigLevel(entity_id, resource), ConfigLevel(entity_id, DEFAULT_RESOURCE)


def _shared_levels(resource: str) -> tuple[ConfigLevel, ConfigLevel]:
    """Return the levels that all entities on a resource have in common, the stronger first."""
    return ConfigLevel("", resource), ConfigLevel("", "")


def _level_keys(namespace_id: str, *levels: ConfigLevel) -> list[Key]:
    return [configs.key(namespace_id, level) for level in levels]


def _shared_config(namespace_id: str, resource: str, items: ItemsByKey) -> SharedConfig:
    resource_item, system_item = (
        items.get(key) for key in _level_keys(namespace_id, *_shared_levels(resource))
    )
    configs.refuse_if_purging(namespace_id, system_item)
    return SharedConfig(
        configs.decode_version(system_item),
        configs.decode(resource_item),
        configs.decode(system_item),
    )


def _registry(namespace_id: str, level: ConfigLevel) -> Key:
    if level.entity_id:
        return keys.entity_config_resources(namespace_id)
    return keys.resources(namespace_id)


def _writes(
    namespace_id: str,
    level: ConfigLevel,
    before: Item | None,
    after: LevelConfig | None,
    revision: str,
    counts: Item | None,
) -> list[ItemWrite]:
    """Return the writes of a level and of the version; ``counts`` is the registry of its kind."""
    if level.is_system:
        return [config_writes.system_update(namespace_id, before, after, revision)]
    bump = config_writes.version_bump(namespace_id)
    registry, counted = _registry(namespace_id, level), None
    if after is None:
        assert before is not None, "only a stored level is deleted"
        write: ItemWrite = guarded.delete(before)
        counted = registries.uncount_resources(registry, counts, [level.resource])
    else:
        write = guarded.put(config_writes.encode(namespace_id, level, after, revision), before)
        if before is None or not configs.is_configured(before):
            counted = registries.count_resource(registry, namespace_id, level.resource)
    return [write, bump, *([] if counted is None else [counted])]
