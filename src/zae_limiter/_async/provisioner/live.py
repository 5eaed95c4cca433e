"""Live settings: read for a set of targets, and traced in the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zae_limiter._frozen import replace
from zae_limiter.concurrency.parallel import agather
from zae_limiter.manifest.diff import Drift
from zae_limiter.manifest.targets import POLICY, Setting, Target, TargetKind
from zae_limiter.models.audit import AuditEvent, config_subject
from zae_limiter.models.config import ConfigLevel, LevelConfig
from zae_limiter.models.entity import Entity

if TYPE_CHECKING:  # the provisioner's function has no repository
    from zae_limiter._async.repository.context import Context

EVENTS = 100  # of one subject, newest first: the last change of a target is among them, or old
MAX_TRACED = 1000  # targets whose last change is looked up: each is a call
PARALLEL_TRACES = 16  # leaves throughput to acquires

_LIMIT_ACTIONS = frozenset({"limits_set", "limits_deleted", "entity_deleted"})
_PLACE_ACTIONS = frozenset(
    {"entity_created", "entity_deleted", "entity_unregistered", "parent_set"}
)


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


# --- the audit log


async def trace(context: Context, drifts: list[Drift]) -> list[Drift]:
    """Add principal and time of the last change of each target, as far as the audit log has it."""
    traced: list[Drift] = []
    for start in range(0, min(len(drifts), MAX_TRACED), PARALLEL_TRACES):
        some = drifts[start : min(start + PARALLEL_TRACES, MAX_TRACED)]
        traced += await agather(
            context.parallel, *(lambda drift=drift: _traced(context, drift) for drift in some)
        )
    return traced + drifts[len(traced) :]


async def _traced(context: Context, drift: Drift) -> Drift:
    target = drift.target
    is_place = target.kind is TargetKind.ENTITY
    subject = target.entity_id if is_place else config_subject(level_of(target))
    events = await context.engine.audit.events(context.namespace_id, subject, None, EVENTS)
    for event in events:
        if _is_about(event, target):
            return replace(drift, principal=event.principal, changed_at=event.timestamp)
    return drift


def _is_about(event: AuditEvent, target: Target) -> bool:
    """Whether an event of the target's subject changed this target."""
    if target.kind is TargetKind.ENTITY:
        return event.action in _PLACE_ACTIONS
    if event.action == "entity_deleted":
        return target.resource in event.details.get("limits_of", ())
    return event.action in _LIMIT_ACTIONS and (event.resource or "") == target.resource
