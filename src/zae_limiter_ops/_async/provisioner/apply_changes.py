"""Apply the changes of a plan, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from zae_limiter._async.repository.context import Context
from zae_limiter.admission.configuration import ConfigBatch, PlaceChange, in_batches
from zae_limiter.clock import Deadline
from zae_limiter.models.config import KEEP, ConfigLevel, LevelChange
from zae_limiter.models.limit import Limit
from zae_limiter_ops._async.provisioner.live import level_of
from zae_limiter_ops._async.provisioner.state_store import StateStore, lost_lease
from zae_limiter_ops.manifest.diff import LimitsPlan
from zae_limiter_ops.manifest.targets import POLICY, SYSTEM, Action, Change, Target, TargetKind

Progress = Callable[[int, int], None]


async def apply_changes(
    context: Context,
    plan: LimitsPlan,
    state: StateStore,
    principal: str | None,
    progress: Progress | None,
    *,
    deadline: Deadline | None = None,
) -> int:
    """Make the changes of a plan; return the number of changes that were made.

    ``state`` holds the lease. After the last change it is released; after the deadline it is kept,
    and the remaining changes are not made. At least one batch is made.

    The managed state is stored before the changes, so that a killed apply leaves nothing unmanaged,
    and again after them. ``progress`` is called after each batch with the number of changes made
    and the number of all changes.
    """
    await state.write(plan.managed_during())
    done = 0
    for changes in ordered_batches(plan.changes):
        if done and deadline is not None and deadline.left() <= 0:
            return done
        await state.renew_lease()
        await _write_batch(context, changes, state, principal)
        done += len(changes)
        if progress is not None:
            progress(done, len(plan.changes))
    await state.write(plan.managed_after(), release=True)
    return done


async def _write_batch(
    context: Context, changes: Sequence[Change], state: StateStore, principal: str | None
) -> None:
    wanted = _level_and_place_changes(changes)
    batch = ConfigBatch.of(wanted, context.clock(), principal, state.guard)
    try:
        written = await context.engine.configs.write(context.namespace_id, batch)
    finally:  # an error may hide a write that has happened
        context.cache.clear()
    if written is None:
        raise lost_lease()
    for change in changes:
        if change.target == POLICY:
            policy = None if change.after is None else change.after.on_unavailable
            context.cache.set_policy(context.namespace_id, policy)


def ordered_batches(changes: list[Change]) -> Iterator[Sequence[Change]]:
    """Yield the changes in the order of an apply, in batches that a store writes at once.

    The system comes first: its limits and its policy share an item, so they share a batch. Then
    defaults of resources are set, entities are set, entities are deleted, and defaults are deleted.
    An entity whose own limits are replaced by a default, or by others, is never without limits.
    """
    return in_batches(sorted(changes, key=_order))


def _order(change: Change) -> int:
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
    others = [change for change in changes if change.target not in system]
    levels: dict[ConfigLevel, LevelChange] = {}
    for change in others:
        if change.target.kind is not TargetKind.ENTITY:
            level = level_of(change.target)
            levels[level] = _with_change(levels.get(level, LevelChange(level, KEEP)), change)
    places = [_place_change(each) for each in others if each.target.kind is TargetKind.ENTITY]
    return [*([_system_change(system)] if system else []), *levels.values(), *places]


def _system_change(changes: dict[Target, Change]) -> LevelChange:
    limits, policy = changes.get(SYSTEM), changes.get(POLICY)
    after = None if policy is None else policy.after
    return LevelChange(
        ConfigLevel(),
        KEEP if limits is None else _limits(limits),
        KEEP if policy is None else None if after is None else after.on_unavailable,
    )


def _with_change(change: LevelChange, added: Change) -> LevelChange:
    """Add a change of the limits or the mode of a level: both are in one item."""
    if added.target.kind is TargetKind.MODE:
        return change._replace(switch=None if added.after is None else added.after.switch)
    return change._replace(limits=_limits(added))


def _place_change(change: Change) -> PlaceChange:
    target, after = change.target, change.after
    if after is None:
        return PlaceChange(target.entity_id, unregister=True)
    return PlaceChange(target.entity_id, after.parent, after.cascade, keep_place=after.keeps_place)


def _limits(change: Change) -> tuple[Limit, ...]:
    return () if change.after is None else change.after.limits
