"""Trace drift in the audit log: find the change that made a target differ from the manifest."""

from __future__ import annotations

from dataclasses import replace

from zae_limiter._async.repository.context import Context
from zae_limiter.models.audit import AuditEvent, config_subject
from zae_limiter.runtime.parallel import agather
from zae_limiter_ops._async.provisioner.live import level_of
from zae_limiter_ops.manifest.drift import Drift
from zae_limiter_ops.manifest.targets import Target, TargetKind

EVENTS = 100  # newest events of a subject that are searched for the last change of a target
MAX_TRACED = 1000  # targets whose last change is looked up: each lookup is a call
PARALLEL_TRACES = 16  # few enough to leave throughput to acquires

_LIMIT_ACTIONS = frozenset({"limits_set", "limits_deleted", "entity_deleted"})
_MODE_ACTIONS = frozenset({"mode_set", "limits_set"})  # one apply may change both
_PLACE_ACTIONS = frozenset(
    {"entity_created", "entity_deleted", "entity_unregistered", "parent_set"}
)


async def trace(context: Context, drifts: list[Drift]) -> list[Drift]:
    """Add the principal and time of the last change to each drift, if the audit log has it."""
    traced: list[Drift] = []
    for start in range(0, min(len(drifts), MAX_TRACED), PARALLEL_TRACES):
        some = drifts[start : min(start + PARALLEL_TRACES, MAX_TRACED)]
        traced += await agather(
            context.parallel, *(lambda drift=drift: _trace_one(context, drift) for drift in some)
        )
    return traced + drifts[len(traced) :]


async def _trace_one(context: Context, drift: Drift) -> Drift:
    target = drift.target
    is_place = target.kind is TargetKind.ENTITY
    subject = target.entity_id if is_place else config_subject(level_of(target))
    events = await context.engine.audit.events(context.namespace_id, subject, None, EVENTS)
    for event in events:
        if _is_about(event, target):
            return replace(drift, principal=event.principal, changed_at=event.timestamp)
    return drift


def _is_about(event: AuditEvent, target: Target) -> bool:
    """Return whether an event of the target's subject changed this target."""
    if target.kind is TargetKind.ENTITY:
        return event.action in _PLACE_ACTIONS
    if event.action == "entity_deleted":
        return target.resource in event.details.get("limits_of", ())
    actions = _MODE_ACTIONS if target.kind is TargetKind.MODE else _LIMIT_ACTIONS
    return event.action in actions and (event.resource or "") == target.resource
