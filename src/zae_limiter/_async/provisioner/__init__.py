"""Bring the stored limits of a namespace to a manifest: plan, apply, diff and export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from zae_limiter._async.provisioner.live import level_of, read_settings, trace
from zae_limiter._async.provisioner.state_store import StateStore, lost_lease
from zae_limiter.exceptions import ValidationError
from zae_limiter.manifest.diff import ApplyResult, Drift, LimitsPlan, compute_drift
from zae_limiter.manifest.problems import ApplyConflict
from zae_limiter.manifest.state import encode
from zae_limiter.manifest.targets import (
    POLICY,
    SYSTEM,
    Action,
    Change,
    Settings,
    Target,
    TargetKind,
    wanted_settings,
)
from zae_limiter.models.audit import bundle_of, config_subject
from zae_limiter.models.batch import ConfigBatch, LevelChange, PlaceChange, in_batches
from zae_limiter.models.config import KEEP, ConfigLevel

if TYPE_CHECKING:
    from zae_limiter._async.repository.context import Context
    from zae_limiter.manifest.declarations import LimitsManifest
    from zae_limiter.models.limit import Limit

__all__ = ["Provisioner"]

# Longer than a batch takes with all its retries; the next apply waits no longer for a killed one.
LEASE_SECONDS = 60
WAIT_SECONDS = 90  # for another apply: longer than a lease, so that a killed one is outlived

Progress = Callable[[int, int], None]


class Provisioner:
    """Makes the stored limits of one namespace what a manifest declares.

    Applies are idempotent and run one at a time. One that was killed is finished by the next. Only
    targets that a manifest names, or that an earlier one has named, are changed.
    """

    def __init__(
        self,
        context: Context,
        principal: str | None = None,
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._context = context
        self._principal = principal
        self._lease_ms = int(lease_seconds * 1000)

    async def plan(self, manifest: LimitsManifest) -> LimitsPlan:
        """Return what an apply would change now, and change nothing."""
        plan, _ = await self._planned(manifest, self._state())
        return plan

    async def apply(
        self,
        manifest: LimitsManifest,
        *,
        approved: str | None = None,
        wait_seconds: float = WAIT_SECONDS,
        progress: Progress | None = None,
    ) -> ApplyResult:
        """Make the changes of the plan, in batches, each with its audit events.

        ``progress`` is called with the changes made and all changes. While another apply is in
        progress this one waits, for at most ``wait_seconds``; then ApplyConflict names it. It is
        also raised if ``approved``, the revision of a plan, is not that of the state any more:
        there was another apply since that plan.
        """
        state = self._state()
        while True:
            plan, _ = await self._planned(manifest, state)
            if approved is not None and plan.revision != approved:
                raise ApplyConflict("another apply was made since this plan; plan again")
            if plan.is_empty and plan.managed == plan.managed_after():
                return ApplyResult.of(plan)
            if await state.wait_until_free(wait_seconds):
                continue  # the other apply has changed what this one was planned from
            pages = len(encode(plan.managed_during(), state.pages).pages)
            if await state.take_lease(pages):
                break
        try:
            await self._carry_out(plan, state, progress)
        except ApplyConflict:
            raise
        except BaseException:  # also if cancelled or interrupted: the next apply need not wait
            await state.release()
            raise
        return ApplyResult.of(plan)

    async def diff(self, manifest: LimitsManifest) -> list[Drift]:
        """Return how stored limits differ from the manifest, with the last change of each."""
        plan, live = await self._planned(manifest, self._state())
        return await trace(self._context, compute_drift(plan, live))

    async def export(self) -> LimitsManifest:
        """Return the stored limits and parents as a manifest, managed or not."""
        from zae_limiter._async.provisioner.export import export

        return await export(self._context)

    # --- planning

    def _state(self) -> StateStore:
        return StateStore(self._context, self._principal, self._lease_ms)

    async def _planned(
        self, manifest: LimitsManifest, state: StateStore
    ) -> tuple[LimitsPlan, Settings]:
        own = self._context.namespace_name
        if manifest.namespace not in (None, own):
            raise ValidationError(
                "manifest.namespace", manifest.namespace, f"is not the namespace {own!r}"
            )
        wanted, managed = wanted_settings(manifest), await state.read()
        live = await read_settings(self._context, wanted.keys() | managed.digests.keys())
        return LimitsPlan.of(wanted, managed, live, state.revision or ""), live

    # --- carrying out

    async def _carry_out(
        self, plan: LimitsPlan, state: StateStore, progress: Progress | None
    ) -> None:
        """Store what will be managed, make the changes, then store what is managed."""
        await state.write(plan.managed_during())
        done = 0
        for changes in _batches(plan.changes):
            await state.renew_lease()
            await self._write(changes, state)
            done += len(changes)
            if progress is not None:
                progress(done, len(plan.changes))
        await state.write(plan.managed_after(), release=True)

    async def _write(self, changes: list[Change], state: StateStore) -> None:
        context = self._context
        now_ms = context.clock()
        batch = ConfigBatch.of(_level_and_place_changes(changes), now_ms, self._principal)
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


def _batches(changes: list[Change]) -> Iterator[list[Change]]:
    """Return the changes in order, as many at a time as a store writes at once.

    Limits and policy of the system are one item: they are in one batch, wherever they come. What
    is set comes before what is deleted, and of that defaults come first: no entity is without
    limits in between because its own become those of its resource.
    """
    return in_batches(sorted(changes, key=_turn), _subject)


def _turn(change: Change) -> tuple[int, int]:
    """Return the place of a change in the order of an apply; entities by bundles of events."""
    target = change.target
    if target in (SYSTEM, POLICY):
        return 0, 0
    is_set = change.action is not Action.DELETE
    if not target.entity_id:
        return 1 if is_set else 4, 0
    return 2 if is_set else 3, bundle_of(target.entity_id)


def _subject(change: Change) -> str:
    target = change.target
    return target.entity_id or config_subject(level_of(target))


def _level_and_place_changes(changes: list[Change]) -> list[LevelChange | PlaceChange]:
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
    return PlaceChange(target.entity_id, after.parent, after.cascade)


def _limits(change: Change) -> tuple[Limit, ...]:
    return () if change.after is None else change.after.limits
