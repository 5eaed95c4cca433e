"""Assemble a manifest from stored limits and registered entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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


def assembled(
    namespace: str | None,
    configs: Mapping[ConfigLevel, LevelConfig],
    registered: Mapping[str, Entity],
) -> LimitsManifest:
    """Return the manifest that declares these limits, parents and registrations."""
    system = configs.get(SYSTEM_LEVEL)
    resources: dict[str, ResourceDecl] = {}
    of_entities: dict[str, dict[str, ResourceDecl]] = {}
    for level, config in sorted(configs.items()):
        if level.is_system:
            continue
        section = of_entities.setdefault(level.entity_id, {}) if level.entity_id else resources
        section[level.resource] = ResourceDecl(_declared(config), config.switch)
    entities = {entity_id: EntityDecl(section) for entity_id, section in of_entities.items()}
    parents = {entity.parent_id for entity in registered.values()}
    for entity in registered.values():
        declared = entities.get(entity.id, EntityDecl())
        if entity.parent_id is not None:
            place = replace(declared, parent=entity.parent_id, cascade=entity.cascade)
            entities[entity.id] = place
        elif entity.id not in parents:  # an apply registers a parent without being told
            entities[entity.id] = replace(declared, registered=True)
    for parent in parents - registered.keys():
        if parent is not None:  # an apply of the manifest must not register this parent
            entities[parent] = replace(entities.get(parent, EntityDecl()), registered=False)
    return LimitsManifest(
        namespace,
        None if system is None else SystemDecl(_declared(system), system.on_unavailable),
        resources,
        dict(sorted(entities.items())),
    )


def _declared(config: LevelConfig) -> dict[str, LimitDecl]:
    return {limit.name: LimitDecl.of(limit) for limit in config.limits}
