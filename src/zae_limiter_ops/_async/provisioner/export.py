"""Export the stored limits of a namespace as a manifest."""

from __future__ import annotations

from zae_limiter._async.repository.context import Context
from zae_limiter.models.config import ConfigLevel, LevelConfig
from zae_limiter.models.entity import Entity
from zae_limiter_ops.manifest.assembling import SYSTEM_LEVEL, assembled
from zae_limiter_ops.manifest.declarations import LimitsManifest

ENTITY_PAGE = 1000  # entities of one listing call


async def export(context: Context) -> LimitsManifest:
    """Return the stored limits, parents and registrations of the namespace as a manifest."""
    configs = await _all_levels(context)
    return assembled(context.namespace_name, configs, await _registered(context))


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
