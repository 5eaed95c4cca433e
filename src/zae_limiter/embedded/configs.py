"""Stored limits of all configuration levels.

Each change increments the configuration version of the namespace.
"""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.embedded.history import PAGE, record
from zae_limiter.embedded.namespaces import is_at
from zae_limiter.embedded.tables import NO_ENTITY, NO_RESOURCE, Listing, Tables
from zae_limiter.models.audit import AuditAction, AuditedChange
from zae_limiter.models.batch import ConfigBatch, level_event, place_event
from zae_limiter.models.config import (
    ConfigLevel,
    ConfigSnapshot,
    LevelConfig,
    StoredLevel,
    check_replaced,
    with_switch,
)
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import Switch, switch_event
from zae_limiter.naming import DEFAULT_RESOURCE


def snapshot(tables: Tables, namespace_id: str, entity_id: str, resource: str) -> ConfigSnapshot:
    """Read all rows that decide an entity's limits on a resource."""
    return ConfigSnapshot(
        version=tables.config_version(namespace_id),
        entity=tables.get_entity(namespace_id, entity_id),
        entity_resource=tables.get_config(namespace_id, entity_id, resource),
        entity_default=tables.get_config(namespace_id, entity_id, DEFAULT_RESOURCE),
        resource=tables.get_config(namespace_id, NO_ENTITY, resource),
        system=tables.get_config(namespace_id, NO_ENTITY, NO_RESOURCE),
    )


def get(tables: Tables, namespace_id: str, level: ConfigLevel) -> LevelConfig | None:
    return tables.get_config(namespace_id, *level)


def put(
    tables: Tables,
    namespace_id: str,
    level: ConfigLevel,
    config: LevelConfig,
    change: AuditedChange,
    if_missing: bool,
) -> StoredLevel:
    """Replace the limits of a configuration level; with ``if_missing`` only if it has none."""
    before = tables.get_config(namespace_id, *level)
    after = config.over(before, if_missing=if_missing)
    if after == before:
        return StoredLevel(after, changed=False)
    _store(tables, namespace_id, level, after)
    details = {**after.to_dict(), "previous": before.to_dict() if before else None}
    record(tables, namespace_id, change, AuditAction.LIMITS_SET, details)
    return StoredLevel(after, changed=True)


def delete(
    tables: Tables,
    namespace_id: str,
    level: ConfigLevel,
    change: AuditedChange,
    replaces: tuple[Limit, ...] | None,
) -> bool:
    """Delete the limits of a configuration level; False if it has none."""
    before = tables.get_config(namespace_id, *level)
    check_replaced(before, replaces)
    if before is None:
        return False
    after = before.without_limits()
    if after == before:
        return False
    _store(tables, namespace_id, level, after)
    details = {"previous": before.to_dict()}
    record(tables, namespace_id, change, AuditAction.LIMITS_DELETED, details)
    return True


def set_switch(
    tables: Tables,
    namespace_id: str,
    level: ConfigLevel,
    switch: Switch | None,
    change: AuditedChange,
) -> bool:
    """Set or remove the switch of a level; False if it is so already. The limits stay."""
    before = tables.get_config(namespace_id, *level)
    after = with_switch(before, switch)
    if after == before:
        return False
    _store(tables, namespace_id, level, after)
    details = switch_event(None if before is None else before.switch, switch)
    record(tables, namespace_id, change, AuditAction.MODE_SET, details)
    return True


def _store(
    tables: Tables, namespace_id: str, level: ConfigLevel, config: LevelConfig | None
) -> None:
    """Write or delete a level, and count the change."""
    if config is None:
        tables.delete_config(namespace_id, *level)
    else:
        tables.put_config(namespace_id, *level, config)
    tables.bump_config_version(namespace_id)


def get_many(
    tables: Tables, namespace_id: str, levels: Sequence[ConfigLevel]
) -> Listing[dict[ConfigLevel, LevelConfig]]:
    """Read the configured levels, page by page."""
    configs = {}
    for start in range(0, len(levels), PAGE):
        for level in levels[start : start + PAGE]:
            config = tables.get_config(namespace_id, *level)
            if config is not None:
                configs[level] = config
        yield
    return configs


def write(tables: Tables, namespace_id: str, batch: ConfigBatch, now_ms: int) -> int | None:
    """Make the changes of a batch; None if its guard does not hold."""
    if batch.guard is not None and not is_at(tables, namespace_id, *batch.guard):
        return None
    levels = _write_levels(tables, namespace_id, batch)
    if levels:
        tables.bump_config_version(namespace_id)
    return levels + _write_places(tables, namespace_id, batch, now_ms)


def _write_levels(tables: Tables, namespace_id: str, batch: ConfigBatch) -> int:
    count = 0
    for change, audited in batch.levels:
        before = tables.get_config(namespace_id, *change.level)
        after = change.after(before)
        if after == before:
            continue
        count += 1
        if after is None:
            tables.delete_config(namespace_id, *change.level)
        else:
            tables.put_config(namespace_id, *change.level, after)
        described = None if before is None else before.to_dict()
        record(tables, namespace_id, audited, *level_event(described, after))
    return count


def _write_places(tables: Tables, namespace_id: str, batch: ConfigBatch, now_ms: int) -> int:
    count = 0
    for change, audited in batch.places:
        before = tables.get_entity(namespace_id, change.entity_id)
        after = change.after(before, now_ms)
        if after == before:
            continue
        count += 1
        if after is None:
            tables.delete_entity(namespace_id, change.entity_id)
        else:
            tables.put_entity(namespace_id, after)
        record(tables, namespace_id, audited, *place_event(before, after))
    return count


def resources_with_defaults(tables: Tables, namespace_id: str) -> Listing[list[str]]:
    resources = tables.config_resources(namespace_id, NO_ENTITY)
    yield
    return [resource for resource in resources if resource != NO_RESOURCE]


def resources_with_entity_configs(tables: Tables, namespace_id: str) -> Listing[list[str]]:
    resources = tables.entity_config_resources(namespace_id)
    yield
    return resources


def configured_entities(
    tables: Tables, namespace_id: str, resource: str, after: str, limit: int | None
) -> Listing[list[str]]:
    listed: list[str] = []
    while limit is None or len(listed) < limit:
        wanted = PAGE if limit is None else min(PAGE, limit - len(listed))
        entity_ids = tables.configured_entities(namespace_id, resource, after, wanted)
        listed += entity_ids
        if len(entity_ids) < wanted:
            break
        after = entity_ids[-1]
        yield
    return listed
