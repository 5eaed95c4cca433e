"""One acquire over several resources: all of them are charged, or none.

An embedded engine charges all buckets in one transaction. DynamoDB writes to one bucket after the
other, always in the order of keys, and refunds the earlier ones if a later one rejects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zae_limiter._async.acquire import Acquire, AcquireCall, logged
from zae_limiter._async.lease import Lease
from zae_limiter._async.repository.config_reads import Fresh
from zae_limiter.admission.request import (
    AcquireEnd,
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.resolution import UnknownLimit
from zae_limiter.admission.several import JointCharge, Part, field_of, wanted_amounts
from zae_limiter.admission.switches import denial
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.refusal import limited_by
from zae_limiter.runtime.finishing import Receipt

if TYPE_CHECKING:
    from types import FrameType

    from zae_limiter._async.holds import HeldQuotas
    from zae_limiter._async.repository.charging import ChargeService
    from zae_limiter.hooks import AcquireWatch, FurtherAmounts
    from zae_limiter.models.status import LimitStatus


def acquire_several(
    call: AcquireCall, consume: dict[str, Any], also: object, caller: FrameType
) -> Acquire:
    """Return the acquire of a call and its further resources; wrong ones raise ValidationError."""
    charge = SeveralCharge(call, consume, also)
    if len(charge.calls) == 1:  # `also` names nothing, or the first resource again
        return Acquire(call, charge.amounts[0], caller)
    return SeveralAcquire(charge, caller)


async def statuses_of_several(
    call: AcquireCall, needed: dict[str, Any], also: object
) -> list[LimitStatus]:
    """Compare an acquire of a call and its further resources with the buckets as they are now."""
    charge = SeveralCharge(call, needed, also, field="needed")
    await charge.open()
    breaker = charge.charging.breaker
    if breaker.is_open:
        breaker.check()
    return await charge.look()


def further_call(call: AcquireCall, entity_id: str, resource: str) -> AcquireCall:
    """Return the call of a further resource, which has stored limits and never waits by itself."""
    return AcquireCall(
        entity_id=entity_id,
        resource=resource,
        limits=None,
        repository=call.repository,
        open_repository=call.open_repository,
        keeps_on_error=call.keeps_on_error,
        speculative=call.speculative,
        cascade=call.cascade,
        on_unavailable=call.on_unavailable,
        observer=call.observer,
    )


class SeveralCharge:
    """The charge of all resources of one acquire, and its refund if the caller is stopped."""

    def __init__(
        self, call: AcquireCall, amounts: dict[str, Any], also: object, *, field: str = "consume"
    ) -> None:
        wanted = wanted_amounts((call.entity_id, call.resource), amounts, also)
        _, *further = wanted
        self.calls = [call, *[further_call(call, *bucket) for bucket in further]]
        self.amounts = list(wanted.values())
        self._fields = [field, *[field_of(call.entity_id, *bucket) for bucket in further]]
        self.timeout: float | None = getattr(call, "timeout", None)
        # Both belong to the last attempt. They are set before the store is asked, so that the
        # refund of a stopped caller finds them.
        self._joint: JointCharge | None = None
        self._receipt: Receipt[ChargeOutcome] = Receipt()

    @property
    def first(self) -> AcquireCall:
        return self.calls[0]

    @property
    def charging(self) -> ChargeService:
        return self.first.charging

    @property
    def also(self) -> FurtherAmounts:
        """The amounts of the further resources, by entity and resource."""
        further = zip(self.calls[1:], self.amounts[1:], strict=True)
        return {(call.entity_id, call.resource): dict(amounts) for call, amounts in further}

    async def charge(self) -> list[Grant]:
        """Return a grant for each resource, or charge nothing and raise RateLimitExceeded."""
        first, rejected, is_shadowed = self.first, list[Any](), False
        await self.open()
        try:
            if self.timeout is None:
                outcome = await self.ask()
            else:
                from zae_limiter._async.several_waiting import JointWaiting

                outcome = await JointWaiting(self, self.timeout).outcome()
            if isinstance(outcome, Rejection):
                rejected, is_shadowed = self._in_named_order(outcome.statuses), first.is_shadow
                raise logged(first, RateLimitExceeded(rejected, self.charging.clock()))
            is_shadowed = outcome.would_reject
        finally:
            if is_shadowed:
                await self._count_shadowed()
            elif rejected or first.waited_s:
                await self._count_end(rejected)
        assert self._joint is not None
        return self._joint.grants(outcome)

    async def open(self) -> None:
        """Open the repository of all calls."""
        first = self.first
        if first.repository is None:
            first.repository = await first.open_repository()
        for call in self.calls:
            call.repository = first.repository

    async def give_back(self) -> None:
        """Refund a committed charge whose caller was stopped before it got the lease."""
        grant = self._receipt.outcome
        if type(grant) is Grant:
            assert self._joint is not None
            undone = [each for part in self._joint.grants(grant) for each in part.undo()]
            await self.first.settle_quietly(tuple(undone), Receipt())

    async def ask(self, *, reads_first: bool = False) -> Grant | Rejection:
        """Charge all resources at once, or none.

        With ``reads_first`` the store reads the buckets, instead of rejecting from its cache.
        """
        charging = self.charging
        breaker, timeout_s = charging.breaker, charging.request_timeout
        if breaker.is_open:
            breaker.check()
        deadline = None if timeout_s is None else Deadline(timeout_s)
        try:
            request = await self._request(deadline, reads_first=reads_first)
            outcome = await self._charge(request)
            if isinstance(outcome, StaleLimits):
                fresh = Fresh(outcome.version, request.now_ms)
                request = await self._request(deadline, fresh, reads_first=reads_first)
                outcome = await self._charge(replace(request, refreshed=True))
        except RateLimiterUnavailable as error:
            breaker.failed(error)
            raise
        assert not isinstance(outcome, StaleLimits), "the limits were just read"
        return outcome

    async def look(self) -> list[LimitStatus]:
        """Read all buckets and compare them with the charges, without making them."""
        charging = self.charging
        joint, now_ms = await self._joint_charge()
        images = await charging.images_of(joint.merged)
        version = joint.outdated_by(images)
        if version is not None:
            joint, now_ms = await self._joint_charge(fresh=Fresh(version, now_ms))
            images = await charging.images_of(joint.merged)
        return joint.in_named_order(joint.statuses(images, charging.clock()))

    async def _joint_charge(
        self, deadline: Deadline | None = None, fresh: Fresh | None = None
    ) -> tuple[JointCharge, int]:
        """Return the charges of all resources under their limits in force, and their stamp."""
        charging, now_ms = self.charging, self.charging.clock()
        parts = []
        for call, amounts, field in zip(self.calls, self.amounts, self._fields, strict=True):
            scope, now_ms = await charging.scope(call, now_ms, deadline, fresh)
            parts.append(Part(scope, amounts, field))
        try:
            return JointCharge.of(parts, now_ms), now_ms
        except UnknownLimit as error:
            raise await charging.explained(error) from None

    async def _request(
        self, deadline: Deadline | None, fresh: Fresh | None = None, *, reads_first: bool
    ) -> ChargeRequest:
        self._joint, now_ms = await self._joint_charge(deadline, fresh)
        return ChargeRequest(
            charges=self._joint.merged,
            clock=self.charging.clock,
            now_ms=now_ms,
            deadline=deadline,
            speculative=self.first.speculative and not reads_first,
            in_order=True,
            on_threshold=self.first.raise_threshold,
        )

    async def _charge(self, request: ChargeRequest) -> ChargeOutcome:
        charging, self._receipt = self.charging, Receipt()
        denied = denial(request.charges, request.now_ms)
        if denied is not None:
            return denied
        outcome = await charging.buckets.charge(charging.namespace_id, request, self._receipt)
        charging.breaker.decided()
        return outcome

    def _in_named_order(self, statuses: Sequence[LimitStatus]) -> list[LimitStatus]:
        return list(statuses) if self._joint is None else self._joint.in_named_order(statuses)

    async def _count_shadowed(self) -> None:
        """Count an acquire that shadow mode let through; the first resource counts it."""
        if self._joint is None:
            return
        charging, charges = self.charging, self._joint.of_parts[0]
        ended = AcquireEnd(
            resource=charges[0].resource,
            buckets=tuple([(charge.entity_id, charge.in_force) for charge in charges]),
            statuses=(),
            has_waited=self.first.waited_s > 0,
            clock=charging.clock,
            is_shadowed=True,
        )
        await self.first.count(ended)

    async def _count_end(self, rejected: Sequence[LimitStatus]) -> None:
        """Count an acquire that was rejected or has waited.

        The first resource counts it, and every other one that held too few tokens. The first one
        stores what refused the acquire, on whichever resource.
        """
        if self._joint is None:
            return
        charging, has_waited = self.charging, self.first.waited_s > 0
        refused_by = limited_by(rejected)
        for charges in self._joint.of_parts:
            buckets = tuple([(charge.entity_id, charge.in_force) for charge in charges])
            resource, in_force = charges[0].resource, dict(buckets)
            listed = [
                each
                for each in rejected
                if each.resource == resource and each.entity_id in in_force
            ]
            is_first = charges is self._joint.of_parts[0]
            if is_first or any(each.exceeded for each in listed):
                ended = AcquireEnd(
                    resource=resource,
                    buckets=buckets,
                    statuses=listed,
                    has_waited=has_waited,
                    clock=charging.clock,
                    is_further=not is_first,
                    refused_by=refused_by if is_first else None,
                )
                await self.first.count(ended)
            has_waited = False  # the first resource counts the wait


class SeveralAcquire(Acquire):
    """The context manager of an acquire over several resources."""

    __slots__ = ("_charge",)

    def __init__(self, charge: SeveralCharge, caller: FrameType) -> None:
        super().__init__(charge.first, charge.amounts[0], caller)
        self._charge = charge

    async def _enter(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError("this acquire was used already; call acquire() again")
        call, charge, watch = self._call, self._charge, None
        if call.observer is not None:
            watch = call.observer.watch(call.entity_id, call.resource)
            watch.also = charge.also
        try:
            grants = await charge.charge()
            lease = SeveralLease(charge, grants, watch)
            self._lease = lease
            lease.hold(grants)
            if watch is not None:
                watch.waited_s = call.waited_s
                cascade = any(len(grant.charges) > 1 for grant in grants)
                watch.acquired(self._consume, lease.statuses, cascade=cascade)
                if any(grant.would_reject for grant in grants):
                    watch.overdrawn(self._consume, lease.statuses)
            return lease
        except RateLimitExceeded as rejected:
            if watch is not None:
                watch.waited_s = call.waited_s
            if watch is None or not watch.rejected(self._consume, rejected):
                raise
        except RateLimiterUnavailable as error:
            admitted = call.admits_in_outage(error)
            if watch is not None:
                watch.failed(error, admitted=admitted)
            if not admitted:
                raise
        except BaseException:
            # The caller never got the lease, so only this place can refund the charge.
            await charge.give_back()
            raise
        self._lease = SeveralLease(charge, None, watch)
        return self._lease


class SeveralLease(Lease):
    """The lease of the first of several resources, which also keeps the leases of the others."""

    __slots__ = ("_further",)

    def __init__(
        self, charge: SeveralCharge, grants: Sequence[Grant] | None, watch: AcquireWatch | None
    ) -> None:
        super().__init__(charge.first, *_granted(charge, grants, 0), watch)
        further = []
        for at, call in enumerate(charge.calls[1:], 1):
            own_watch = None
            if watch is not None and call.observer is not None:
                own_watch = call.observer.watch(call.entity_id, call.resource)
            if call.repository is None:  # the outage began before it could be opened
                call.repository = charge.first.repository
            part = Lease(call, *_granted(charge, grants, at), own_watch)
            # The operations of all resources share a line, since one settlement ends all of them.
            part._line, part._lock = self._line, self._lock  # noqa: SLF001 - a part of this lease
            further.append(part)
        self._further = tuple(further)

    @property
    def lost(self) -> bool:
        """Whether slots of this lease have expired, on any of its resources."""
        return super().lost or any(each.lost for each in self._further)

    @property
    def shadowed(self) -> bool:
        """Whether shadow mode let the acquire through, on any of its resources."""
        return super().shadowed or any(each.shadowed for each in self._further)

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Return the limits of all resources, as ``Lease.statuses`` does for one.

        A bucket that several resources share is listed once.
        """
        listed: dict[tuple[str, str, str], LimitStatus] = {}
        for lease in self._leases():
            for status in lease._own_statuses():  # noqa: SLF001 - a part of this lease
                key = (status.entity_id, status.resource, status.limit_name)
                known = listed.get(key)
                if known is None or status.available < known.available:
                    listed[key] = status
        return tuple(listed.values())

    def hold(self, grants: Sequence[Grant]) -> None:
        """Hold the slots and the quotas of all resources until the block ends."""
        for lease, grant in zip(self._leases(), grants, strict=True):
            if grant.holds or grant.quota_holds:
                lease._hold(grant)  # noqa: SLF001 - a part of this lease

    def _leases(self) -> tuple[Lease, ...]:
        return (self, *self._further)

    def _close(self, failed: bool) -> bool:
        further = [lease._close(failed) for lease in self._further]  # noqa: SLF001 - parts of this
        return super()._close(failed) or True in further

    async def _write_end(self, failed: bool) -> None:
        """Settle all resources together, so that an interrupt finds all of them written or none."""
        with self._lock:
            ended = self._ended = self._ended or Receipt()
        for lease in self._further:
            lease._ended = ended  # noqa: SLF001 - a part of this lease
        settlements: list[Settlement] = []
        if not ended.has_outcome:
            for lease in self._leases():
                settlements += await lease._settlements_at_end(failed)  # noqa: SLF001
        await self._settle_end(tuple(settlements), ended)

    def _held_quotas(self) -> Sequence[HeldQuotas]:
        return [held for lease in self._leases() for held in lease._quotas or ()]  # noqa: SLF001

    def _slots_are_back(self) -> None:
        for lease in self._leases():
            if lease._slots is not None:  # noqa: SLF001 - a part of this lease
                lease._wake_slot_waiters()  # noqa: SLF001

    async def _return_slots(self) -> None:
        await super()._return_slots()
        for lease in self._further:
            await lease._return_slots()  # noqa: SLF001 - a part of this lease


def _granted(
    charge: SeveralCharge, grants: Sequence[Grant] | None, at: int
) -> tuple[Grant | None, dict[str, Any]]:
    """Return the grant of one resource and its amounts, without slots; None if it is uncharged."""
    if grants is None:
        return None, {}
    grant, amounts = grants[at], charge.amounts[at]
    names = grant.names()
    return grant, {name: amount for name, amount in amounts.items() if name in names}
