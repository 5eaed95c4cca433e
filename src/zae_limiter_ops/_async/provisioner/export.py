"""Export the stored limits of a namespace as a manifest."""

from __future__ import annotations

from dataclasses import replace

from zae_limiter._async.repository.context import Context
from zae_limiter.models.config import ConfigLevel, LevelConfig
from zae_limiter.models.entity import Entity
from zae_limiter_ops.manifest.declarations import (
    EntityDecl,
    LimitDecl,
    LimitsManifest,
    ResourceDecl,
    SystemDecl,
)

SYSTEM_LEVEL = ConfigLevel()
ENTITY_PAGE = 1000  # entities of one listing call


async def export(context: Context) -> LimitsManifest:
    """Return the stored limits, parents and registrations of the namespace as a manifest."""
    configs = await _all_levels(context)
    system = configs.pop(SYSTEM_LEVEL, None)
    resources: dict[str, ResourceDecl] = {}
    of_entities: dict[str, dict[str, ResourceDecl]] = {}
    for level, config in sorted(configs.items()):
        section = of_entities.setdefault(level.entity_id, {}) if level.entity_id else resources
        section[level.resource] = ResourceDecl(_declared(config))
    entities = {entity_id: EntityDecl(section) for entity_id, section in of_entities.items()}
    registered = await _registered(context)
    parents = {entity.parent_id for entity in registered.values()}
    for entity in registered.values():
        declared = entities.get(entity.id, EntityDecl())
        if entity.parent_id is not None:
            place = replace(declared, parent=entity.parent_id, cascade=entity.cascade)
            entities[entity.id] = place
        elif entity.id not in parents:  # an apply registers a parent without being told
            entities[entity.id] = replace(declared, registered=True)
    for parent in parents - registered.keys():
        if parent is not None:  # an apply of the export must not register this parent
            entities[parent] = replace(entities.get(parent, EntityDecl()), registered=False)
    return LimitsManifest(
        context.namespace_name,
        None if system is None else SystemDecl(_declared(system), system.on_unavailable),
        resources,
        dict(sorted(entities.items())),
    )


def _declared(config: LevelConfig) -> dict[str, LimitDecl]:
    return {limit.name: LimitDecl.of(limit) for limit in config.limits}


async def _all_levels(context: Context) -> dict[ConfigLevel, LevelConfig]:
    store, namespace_id = context.engine.configs, context.namespace_id
    resources = await store.resources_with_defaults(namespace_id)
    levels = [SYSTEM_LEVEL, *(ConfigLevel(resource=resource) for resource in resources)]
    for resource in await store.resources_with_entity_configs(namespace_id):
        entity_ids = await store.configured_entities(namespace_id, resource, "", None)
        levels += [ConfigLevel(entity_id, resource) for entity_id in entity_ids]
    return await store.get_many(namespace_id, levels)


async def _registered(context: Context) -> dict[str, Entity]:
    """Return the registered entities by their ids.

    A listing also contains entities that are in use without being registered; these are left out.
    """
    registered: dict[str, Entity] = {}
    cursor: str | None = ""
    while cursor is not None:
        page, cursor = await context.engine.entities.page(
            context.namespace_id, None, cursor, ENTITY_PAGE
        )
        registered |= {entity.id: entity for entity in page if entity.created_at}
    return registered
