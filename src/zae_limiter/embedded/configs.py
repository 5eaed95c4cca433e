"""Stored limits of all configuration levels.

Each change increments the configuration version of the namespace.
"""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.admission.configuration import ConfigBatch, Revised, revise_level
from zae_limiter.embedded.entities import place
from zae_limiter.embedded.history import PAGE, record
from zae_limiter.embedded.namespaces import is_at
from zae_limiter.embedded.tables import NO_ENTITY, NO_RESOURCE, Listing, Tables
from zae_limiter.models.audit import AuditedChange
from zae_limiter.models.config import ConfigLevel, ConfigSnapshot, LevelChange, LevelConfig
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


def change(
    tables: Tables, namespace_id: str, change: LevelChange, audited: AuditedChange
) -> Revised[LevelConfig]:
    """Change a configuration level; LimitsChangedError if it has other limits than it replaces."""
    revised = _change(tables, namespace_id, change, audited)
    if revised.is_changed:
        tables.bump_config_version(namespace_id)
    return revised


def _change(
    tables: Tables, namespace_id: str, change: LevelChange, audited: AuditedChange
) -> Revised[LevelConfig]:
    revised = revise_level(change, tables.get_config(namespace_id, *change.level))
    if revised.event is None:
        return revised
    if revised.after is None:
        tables.delete_config(namespace_id, *change.level)
    else:
        tables.put_config(namespace_id, *change.level, revised.after)
    record(tables, namespace_id, audited, *revised.event)
    return revised


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


def write(tables: Tables, namespace_id: str, batch: ConfigBatch) -> int | None:
    """Make the changes of a batch; None if its guard does not hold."""
    if batch.guard is not None and not is_at(tables, namespace_id, *batch.guard):
        return None
    revised = [_change(tables, namespace_id, *level) for level in batch.levels]
    levels = sum(level.is_changed for level in revised)
    if levels:
        tables.bump_config_version(namespace_id)
    places = [place(tables, namespace_id, *each) for each in batch.places]
    return levels + sum(entity.is_changed for entity in places)


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
