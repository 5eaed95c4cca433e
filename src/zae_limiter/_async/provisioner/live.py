"""Live settings, read for a set of targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zae_limiter.manifest.targets import POLICY, Setting, Target, TargetKind
from zae_limiter.models.config import ConfigLevel, LevelConfig
from zae_limiter.models.entity import Entity

if TYPE_CHECKING:  # the provisioner's function has no repository
    from zae_limiter._async.repository.context import Context


def level_of(target: Target) -> ConfigLevel:
    """Return the configuration level of a target that has limits or a policy."""
    return ConfigLevel(target.entity_id, target.resource)


async def read_settings(context: Context, targets: Iterable[Target]) -> dict[Target, Setting]:
    """Read those of the targets that exist, each as it is at a moment of the call."""
    wanted = set(targets)
    places = sorted(target.entity_id for target in wanted if target.kind is TargetKind.ENTITY)
    levels = sorted({level_of(target) for target in wanted if target.kind is not TargetKind.ENTITY})
    configs = await context.engine.configs.get_many(context.namespace_id, levels)
    entities = await context.engine.entities.get_many(context.namespace_id, places)
    settings = {}
    for target in wanted:
        if target.kind is TargetKind.ENTITY:
            entity = entities.get(target.entity_id)
            setting = None if entity is None else place_setting(entity)
        else:
            setting = _level_setting(target, configs.get(level_of(target)))
        if setting is not None:
            settings[target] = setting
    return settings


def place_setting(entity: Entity) -> Setting:
    is_described = entity.name is not None or bool(entity.metadata)
    return Setting(parent=entity.parent_id, cascade=entity.cascade, is_described=is_described)


def _level_setting(target: Target, config: LevelConfig | None) -> Setting | None:
    if config is None:
        return None
    if target == POLICY:
        policy = config.on_unavailable
        return None if policy is None else Setting(on_unavailable=policy)
    return Setting(config.limits) if config.limits else None
