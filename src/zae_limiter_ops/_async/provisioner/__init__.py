"""Bring the stored limits of a namespace to a manifest: plan, apply, diff and export."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zae_limiter.exceptions import ValidationError
from zae_limiter_ops._async.provisioner.live import StateReader, read_settings
from zae_limiter_ops.manifest.diff import ApplyResult, LimitsPlan
from zae_limiter_ops.manifest.problems import ApplyConflict
from zae_limiter_ops.manifest.state import encode
from zae_limiter_ops.manifest.targets import Settings, wanted_settings

if TYPE_CHECKING:
    from zae_limiter._async.repository.context import Context
    from zae_limiter_ops.manifest.declarations import LimitsManifest
    from zae_limiter_ops.manifest.drift import Drift

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
        plan, _ = await self._planned(manifest, StateReader(self._context))
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
        from zae_limiter_ops._async.provisioner.state_store import StateStore  # plans do without

        state = StateStore(self._context, self._principal, self._lease_ms)
        while True:
            plan, _ = await self._planned(manifest, state)
            if approved is not None and plan.revision != approved:
                raise ApplyConflict("another apply was made since this plan; plan again")
            if plan.is_empty and plan.managed == plan.managed_after():
                return ApplyResult.of(plan)
            if await state.wait_until_free(wait_seconds):
                continue  # the other apply has changed what this one was planned from
            if await state.end_expired_lease():
                approved = approved and state.revision
                continue
            pages = len(encode(plan.managed_during(), state.pages).pages)
            if await state.take_lease(pages):
                break
        from zae_limiter_ops._async.provisioner.carrying_out import carry_out

        try:
            await carry_out(self._context, plan, state, self._principal, progress)
        except ApplyConflict:
            raise
        except BaseException:  # also if cancelled or interrupted: the next apply need not wait
            await state.release()
            raise
        return ApplyResult.of(plan)

    async def diff(self, manifest: LimitsManifest) -> list[Drift]:
        """Return how stored limits differ from the manifest, with the last change of each."""
        from zae_limiter_ops._async.provisioner.tracing import trace
        from zae_limiter_ops.manifest.drift import compute_drift

        plan, live = await self._planned(manifest, StateReader(self._context))
        return await trace(self._context, compute_drift(plan, live))

    async def export(self) -> LimitsManifest:
        """Return the stored limits, parents and registrations as a manifest, managed or not."""
        from zae_limiter_ops._async.provisioner.export import export

        return await export(self._context)

    # --- planning

    async def _planned(
        self, manifest: LimitsManifest, state: StateReader
    ) -> tuple[LimitsPlan, Settings]:
        own = self._context.namespace_name
        if manifest.namespace not in (None, own):
            raise ValidationError(
                "manifest.namespace", manifest.namespace, f"is not the namespace {own!r}"
            )
        wanted, managed = wanted_settings(manifest), await state.read()
        live = await read_settings(self._context, wanted.keys() | managed.digests.keys())
        return LimitsPlan.of(wanted, managed, live, state.revision or ""), live
