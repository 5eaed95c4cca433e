"""The changes of a plan, made in batches: what an apply does that a plan and a diff do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from zae_limiter.models.batch import ConfigBatch, LevelChange, PlaceChange, in_batches
from zae_limiter.models.config import KEEP, ConfigLevel
from zae_limiter_ops._async.provisioner.live import level_of
from zae_limiter_ops._async.provisioner.state_store import StateStore, lost_lease
from zae_limiter_ops.manifest.diff import LimitsPlan
from zae_limiter_ops.manifest.targets import POLICY, SYSTEM, Action, Change, Target, TargetKind

if TYPE_CHECKING:
    from zae_limiter._async.repository.context import Context
    from zae_limiter.models.limit import Limit
    from zae_limiter_ops._async.provisioner import Progress


async def carry_out(
    context: Context,
    plan: LimitsPlan,
    state: StateStore,
    principal: str | None,
    progress: Progress | None,
) -> None:
    """Store what will be managed, make the changes, then store what is managed."""
    await state.write(plan.managed_during())
    done = 0
    for changes in in_turn(plan.changes):
        await state.renew_lease()
        await _write(context, changes, state, principal)
        done += len(changes)
        if progress is not None:
            progress(done, len(plan.changes))
    await state.write(plan.managed_after(), release=True)


async def _write(
    context: Context, changes: Sequence[Change], state: StateStore, principal: str | None
) -> None:
    now_ms = context.clock()
    batch = ConfigBatch.of(_level_and_place_changes(changes), now_ms, principal)
    try:
        written = await context.engine.configs.write(
            context.namespace_id, batch._replace(guard=state.guard), now_ms=now_ms
        )
    finally:  # also if the outcome is unknown
        context.cache.clear()
    if written is None:
        raise lost_lease()
    for change in changes:
        if change.target == POLICY:
            policy = None if change.after is None else change.after.on_unavailable
            context.cache.set_policy(context.namespace_id, policy)


def in_turn(changes: list[Change]) -> Iterator[Sequence[Change]]:
    """Return the changes in order, as many at a time as a store writes at once.

    Limits and policy of the system are one item: they are in one batch, wherever they come. What
    is set comes before what is deleted, and of that defaults come first: no entity is without
    limits in between because its own become those of its resource.
    """
    return in_batches(sorted(changes, key=_turn))


def _turn(change: Change) -> int:
    """Return the place of a change in the order of an apply."""
    target = change.target
    if target in (SYSTEM, POLICY):
        return 0
    is_set = change.action is not Action.DELETE
    if not target.entity_id:
        return 1 if is_set else 4
    return 2 if is_set else 3


def _level_and_place_changes(changes: Sequence[Change]) -> list[LevelChange | PlaceChange]:
    system = {change.target: change for change in changes if change.target in (SYSTEM, POLICY)}
    converted = [_converted(change) for change in changes if change.target not in system]
    return [*([_system_change(system)] if system else []), *converted]


def _system_change(changes: dict[Target, Change]) -> LevelChange:
    limits, policy = changes.get(SYSTEM), changes.get(POLICY)
    after = None if policy is None else policy.after
    return LevelChange(
        ConfigLevel(),
        KEEP if limits is None else _limits(limits),
        KEEP if policy is None else None if after is None else after.on_unavailable,
    )


def _converted(change: Change) -> LevelChange | PlaceChange:
    target, after = change.target, change.after
    if target.kind is not TargetKind.ENTITY:
        return LevelChange(level_of(target), _limits(change))
    if after is None:
        return PlaceChange(target.entity_id, unregister=True)
    return PlaceChange(target.entity_id, after.parent, after.cascade, keep_place=after.keeps_place)


def _limits(change: Change) -> tuple[Limit, ...]:
    return () if change.after is None else change.after.limits
