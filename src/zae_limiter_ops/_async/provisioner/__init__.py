"""The provisioner: plan, apply, diff and export manifests of one namespace."""

from __future__ import annotations

from zae_limiter._async.repository.context import Context
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import ValidationError
from zae_limiter_ops._async.provisioner.apply_changes import Progress, apply_changes
from zae_limiter_ops._async.provisioner.export import export
from zae_limiter_ops._async.provisioner.live import StateReader, read_settings
from zae_limiter_ops._async.provisioner.state_store import StateStore
from zae_limiter_ops._async.provisioner.tracing import trace
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.deletions import check_deletions
from zae_limiter_ops.manifest.diff import ApplyResult, LimitsPlan, Unfinished
from zae_limiter_ops.manifest.drift import Drift, compute_drift
from zae_limiter_ops.manifest.problems import ApplyConflict
from zae_limiter_ops.manifest.state import encode
from zae_limiter_ops.manifest.targets import Action, Settings, wanted_settings

# The lease is longer than a batch takes with all its retries. After an apply was killed, the next
# apply waits until the lease ends.
LEASE_SECONDS = 60
WAIT_SECONDS = 90  # for another apply: longer than the lease of a killed apply


class Provisioner:
    """Changes the stored limits of one namespace to the limits that a manifest declares.

    Applies are idempotent and run one at a time. The next apply finishes a killed apply. An apply
    changes only targets that its manifest or an earlier manifest names.
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
        """Return the changes that an apply would make now, without making them."""
        plan, _ = await self._make_plan(manifest, StateReader(self._context))
        return plan

    async def apply(
        self,
        manifest: LimitsManifest,
        *,
        approved: str | None = None,
        allow_deletions: float | None = None,
        wait_seconds: float = WAIT_SECONDS,
        progress: Progress | None = None,
        deadline: Deadline | None = None,
    ) -> ApplyResult:
        """Make the changes of the plan, in batches, each with its audit events.

        ``progress`` is called with the number of changes made and the number of all changes.
        ``approved`` is the revision of a plan: ApplyConflict is raised if another apply was made
        since that plan. While another apply is in progress, this apply waits for at most
        ``wait_seconds``, and then raises an ApplyConflict that names the other apply. After the
        ``deadline`` the apply ends between two batches, and the result is ``unfinished``.
        At most ``allow_deletions`` settings are deleted; without it, at most 10 or a quarter of
        the managed settings. DeletionsRefused is raised before anything is changed.
        """
        state = StateStore(self._context, self._principal, self._lease_ms)
        while True:
            plan, _ = await self._make_plan(manifest, state)
            if approved is not None and plan.revision != approved:
                raise ApplyConflict("another apply was made since this plan; plan again")
            if plan.is_empty and plan.managed == plan.managed_after():
                return ApplyResult.of(plan)
            if await state.wait_until_free(wait_seconds):
                continue  # the other apply has changed the state that this plan was made from
            if await state.end_expired_lease():
                approved = approved and state.revision
                continue
            check_deletions(plan.count(Action.DELETE), plan.existing, allow_deletions)
            pages = len(encode(plan.managed_during(), state.pages).pages)
            if await state.take_lease(pages):
                break
        try:
            done = await apply_changes(
                self._context, plan, state, self._principal, progress, deadline=deadline
            )
        except ApplyConflict:
            raise
        except BaseException:  # a cancelled or interrupted apply must not keep the next waiting
            await state.release()
            raise
        if done == len(plan.changes):
            return ApplyResult.of(plan)
        await state.release()
        return ApplyResult.of(plan, Unfinished(done, len(plan.changes), state.revision or ""))

    async def diff(self, manifest: LimitsManifest) -> list[Drift]:
        """Return each target that differs from the manifest, with the last change of the target."""
        plan, live = await self._make_plan(manifest, StateReader(self._context))
        return await trace(self._context, compute_drift(plan, live))

    async def export(self) -> LimitsManifest:
        """Return all stored limits, parents and registrations as a manifest.

        Limits that no manifest manages are included.
        """
        return await export(self._context)

    # --- planning

    async def _make_plan(
        self, manifest: LimitsManifest, state: StateReader
    ) -> tuple[LimitsPlan, Settings]:
        """Return the plan for a manifest, and the live settings that the plan was made from."""
        own = self._context.namespace_name
        if manifest.namespace not in (None, own):
            raise ValidationError(
                "manifest.namespace", manifest.namespace, f"is not the namespace {own!r}"
            )
        wanted, managed = wanted_settings(manifest), await state.read()
        live = await read_settings(self._context, wanted.keys() | managed.digests.keys())
        return LimitsPlan.of(wanted, managed, live, state.revision or ""), live
