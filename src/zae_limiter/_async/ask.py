"""What an acquire asks the store: whether it gives the amounts. ``ask`` is the only loop."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.charging import ChargeService
from zae_limiter._async.repository.config_reads import Fresh
from zae_limiter.admission.request import (
    AcquireEnd,
    Charge,
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.resolution import Scope, UnknownLimit, outdated_by
from zae_limiter.admission.switches import denial
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.runtime.finishing import Receipt

if TYPE_CHECKING:
    from zae_limiter._async.holds import HeldQuotas
    from zae_limiter.admission.several import JointCharge
    from zae_limiter.admission.thresholds import Crossing, Exhaustion
    from zae_limiter.hooks import AcquireWatch, Observer
    from zae_limiter.models.status import LimitStatus
    from zae_limiter.quiet_logging import QuietLogger

_DEBUG = 10  # logging.DEBUG; `import zae_limiter` does not import logging


@dataclass(eq=False, repr=False, slots=True)
class AcquireCall:
    """An acquire, or a ``consume`` within a lease: the amounts that it asks for, and its options.

    The buckets of a call are those of its resource, the entity's and a parent's, and those of
    ``further`` resources.
    """

    entity_id: str
    resource: str
    amounts: dict[str, Any]
    limits: tuple[Limit, ...] | None  # those of the call, in place of stored ones
    repository: Repository | None  # None until it is opened by `open_repository`
    open_repository: Callable[[], Awaitable[Repository]]
    prefer_stored: bool = False  # `limits` count only if none are stored
    keeps_on_error: bool = False
    speculative: bool = True
    cascade: bool | None = None
    on_unavailable: OnUnavailable | None = None
    observer: Observer | None = None
    timeout: float | None = None  # None if it does not wait
    is_acquire: bool = True  # False for more tokens within a lease
    field: str = "consume"  # the argument that holds the amounts, for errors
    further: tuple[AcquireCall, ...] = ()
    waited_s: float = 0.0
    # What the store was asked last: the limits in force on each resource, at which moment, and the
    # charges of several resources.
    scopes: Sequence[Scope] = ()
    now_ms: int = 0
    joint: JointCharge | None = None

    @property
    def is_shadow(self) -> bool:
        """Whether the call is in shadow mode, in which it is never rejected and never waits."""
        return self.observer is not None and self.observer.is_shadow

    @property
    def charging(self) -> ChargeService:
        assert self.repository is not None, "the repository is opened before the first call"
        return self.repository.charging

    @property
    def parts(self) -> tuple[AcquireCall, ...]:
        """The calls of all resources, this one first."""
        return (self, *self.further)

    def add_further(self, also: object) -> None:
        """Ask further resources as well; wrong ones raise ValidationError."""
        from zae_limiter.admission.several import field_of, wanted_amounts

        own = self.entity_id, self.resource
        wanted = wanted_amounts(own, self.amounts, also)
        self.amounts = wanted.pop(own)
        self.further = tuple(
            [
                self.about(*bucket, amounts, field=field_of(self.entity_id, *bucket))
                for bucket, amounts in wanted.items()
            ]
        )

    def about(
        self,
        entity_id: str,
        resource: str,
        amounts: dict[str, Any],
        limits: tuple[Limit, ...] | None = None,
        *,
        is_acquire: bool = True,
        field: str = "consume",
    ) -> AcquireCall:
        """Return a call about one resource that does not wait, with the options of this one."""
        return AcquireCall(
            entity_id,
            resource,
            amounts,
            limits,
            self.repository,
            self.open_repository,
            self.prefer_stored,
            self.keeps_on_error,
            self.speculative,
            self.cascade,
            self.on_unavailable,
            self.observer,
            is_acquire=is_acquire,
            field=field,
        )

    def watch(self) -> AcquireWatch | None:
        """Begin to watch the call for its hooks; None if there are none."""
        if self.observer is None:
            return None
        watch = self.observer.watch(self.entity_id, self.resource)
        if self.further:
            watch.also = {
                (each.entity_id, each.resource): dict(each.amounts) for each in self.further
            }
        return watch

    # --- asking

    async def charge(self, receipt: Receipt[ChargeOutcome]) -> Grant:
        """Charge all buckets, or raise RateLimitExceeded. The receipt gets the outcome."""
        if self.timeout is not None:
            from zae_limiter._async.waiting import grant_in_time  # most programs do not wait

            return await grant_in_time(self, self.timeout, receipt)
        outcome = await self.ask(receipt)
        if type(outcome) is Rejection:
            if self.is_acquire:
                await self.count_end(outcome.statuses, is_shadowed=self.is_shadow)
            # The error has no local name, since a reference from its own frame would be a cycle.
            raise self.rejected(outcome.statuses)
        assert type(outcome) is Grant
        if outcome.would_reject and self.is_acquire:
            await self.count_end(is_shadowed=True)
        return outcome

    async def ask(
        self,
        receipt: Receipt[ChargeOutcome],
        *,
        number: int | None = None,
        until_ms: Callable[[int], int] | None = None,
        reads_first: bool = False,
    ) -> Grant | Rejection:
        """Charge all buckets, or none.

        With a ``number`` only that bucket is charged. With ``until_ms`` the charge is a reservation
        up to a moment, which follows from the stamp. With ``reads_first`` the store reads the
        buckets, instead of rejecting from its cache.
        """
        if self.repository is None:
            self.repository = await self.open_repository()
        charging, fresh = self.repository.charging, None
        breaker, timeout_s = charging.breaker, charging.request_timeout
        if breaker.is_open:
            breaker.check()
        deadline = None if timeout_s is None else Deadline(timeout_s)
        try:
            while True:
                charges = await self._charges(charging, deadline, fresh)
                denied = denial(charges, self.now_ms)
                if denied is not None:
                    return self._in_named_order(denied)
                if number is not None:
                    charges = charges[number : number + 1]
                    if not charges:  # the entity has lost its parent meanwhile
                        return Grant(())
                request = ChargeRequest(
                    charges,
                    charging.clock,
                    self.now_ms,
                    deadline,
                    self.is_acquire,
                    self.speculative and not reads_first,
                    fresh is not None,
                    None if until_ms is None else until_ms(self.now_ms),
                    bool(self.further),
                    self.raise_threshold,
                )
                outcome = await charging.buckets.charge(charging.namespace_id, request, receipt)
                if isinstance(outcome, StaleLimits):
                    assert fresh is None, "the limits were just read"
                    fresh = Fresh(outcome.version, self.now_ms)
                    continue
                breaker.decided()
                return outcome if isinstance(outcome, Grant) else self._in_named_order(outcome)
        except RateLimiterUnavailable as error:
            breaker.failed(error)
            raise

    async def look(self) -> tuple[LimitStatus, ...]:
        """Read all buckets and compare them with the charges, without making them."""
        from zae_limiter.admission.statuses import statuses_of_all

        await self.reach()
        charging = self.charging
        charges = await self._charges(charging)
        images = await charging.images(charges)
        version = outdated_by(images, charges)
        if version is not None:
            fresh = Fresh(version, self.now_ms)
            charges = await self._charges(charging, None, fresh)
            images = await charging.images(charges)
        self.now_ms = charging.clock()
        listed = Rejection(tuple(statuses_of_all(charges, images, self.now_ms)))
        return self._in_named_order(listed).statuses

    async def resolve(self) -> Scope:
        """Return the buckets of the first resource, with their limits in force."""
        await self.reach()
        charging = self.charging
        scope, self.now_ms = await charging.scope(self, charging.clock())
        self.scopes = (scope,)
        return scope

    async def reach(self) -> None:
        """Open the repository, and raise an outage that is known already."""
        if self.repository is None:
            self.repository = await self.open_repository()
        if self.charging.breaker.is_open:
            self.charging.breaker.check()

    async def _charges(
        self, charging: ChargeService, deadline: Deadline | None = None, fresh: Fresh | None = None
    ) -> tuple[Charge, ...]:
        """Return one charge for each bucket; ``fresh`` skips the cache of configuration."""
        scope, now_ms = await charging.scope(self, charging.clock(), deadline, fresh)
        try:
            if not self.further:
                self.scopes, self.now_ms = (scope,), now_ms
                return scope.charges(self.amounts, now_ms, self.field, self.is_acquire)
            from zae_limiter.admission.several import JointCharge, Part  # most have one resource

            parts = [Part(scope, self.amounts, self.field)]
            for each in self.further:
                scope, now_ms = await charging.scope(each, now_ms, deadline, fresh)
                parts.append(Part(scope, each.amounts, each.field))
            joint = self.joint = JointCharge.of(parts, now_ms)
        except UnknownLimit as error:
            raise await charging.explained(error) from None
        self.scopes, self.now_ms = joint.scopes, now_ms
        return joint.merged

    def _in_named_order(self, rejection: Rejection) -> Rejection:
        """Return a rejection in the order in which the caller named resources."""
        if self.joint is None:
            return rejection
        return Rejection(self.joint.in_named_order(rejection.statuses))

    # --- ending

    def rejected(
        self, listed: Sequence[LimitStatus], now_ms: int | None = None
    ) -> RateLimitExceeded:
        """Return the error of a rejection, and log it at DEBUG.

        A program that has not imported logging has no handlers, so this does not import it.
        """
        error = RateLimitExceeded(listed, self.now_ms if now_ms is None else now_ms)
        if "logging" in sys.modules and _logger().isEnabledFor(_DEBUG):
            _log_rejection(self, error)
        return error

    def lets_through(
        self,
        error: RateLimitExceeded | RateLimiterUnavailable,
        watch: AcquireWatch | None,
        began_s: float | None = None,
    ) -> bool:
        """Report an error to the hooks, and tell whether the call goes on without a charge.

        Shadow mode lets a rejected call through, and the outage policy one that got no answer.
        """
        if isinstance(error, RateLimitExceeded):
            if watch is None:
                return False
            if self.is_acquire:
                watch.waited_s = self.waited_s
            return watch.rejected(self.amounts, error, began_s)
        is_admitted = self._admits_in_outage(error)
        if watch is not None:
            watch.failed(error, admitted=is_admitted, began_s=began_s)
        return is_admitted

    def _admits_in_outage(self, error: RateLimiterUnavailable) -> bool:
        """Tell whether the outage policy lets the call through; name the call in the error."""
        error.entity_id, error.resource = self.entity_id, self.resource
        if self.repository is None:  # the outage began before it could be opened
            return self.is_shadow or self.on_unavailable is OnUnavailable.ALLOW
        error.stack_name = error.stack_name or self.repository.stack_name
        policy = self.charging.outage_policy(self.on_unavailable)
        if policy is not OnUnavailable.ALLOW and not self.is_shadow:
            return False
        self.charging.count_uncharged(error)
        return True

    async def count_end(
        self, rejected: Sequence[LimitStatus] = (), *, is_shadowed: bool = False
    ) -> None:
        """Count an acquire that was rejected or shadowed, or has waited."""
        clock, has_waited = self.charging.clock, self.waited_s > 0
        if not self.further:
            ends = [
                AcquireEnd(each.resource, each.buckets, rejected, has_waited, clock, is_shadowed)
                for each in self.scopes
            ]
        else:
            from zae_limiter.admission.several import ends_of  # most calls have one resource

            ends = ends_of(self.scopes, rejected, has_waited, clock, is_shadowed)
        for ended in ends:
            await self._count(ended)

    async def _count(self, ended: AcquireEnd) -> None:
        """Count the end of an acquire, and tell of the quotas that it has found exhausted."""
        charging = self.charging
        charging.buckets.count(charging.namespace_id, ended)
        if ended.is_shadowed or not any(limits.quota_keys for _, limits in ended.buckets):
            return
        from zae_limiter.admission.thresholds import rejected_by  # rates need no quotas

        rejected = rejected_by(ended)
        if rejected:
            await charging.buckets.mark_exhausted(
                charging.namespace_id, rejected, self.raise_exhausted, ended.clock
            )

    def parts_of(self, grant: Grant) -> Sequence[Grant]:
        """Return the grant of each resource."""
        return (grant,) if self.joint is None else self.joint.grants(grant)

    async def give_back(self, receipt: Receipt[ChargeOutcome]) -> None:
        """Refund a committed charge whose caller was stopped before it got the answer."""
        grant = receipt.outcome
        if type(grant) is Grant:
            undone = [each for part in self.parts_of(grant) for each in part.undo()]
            await self.settle_quietly(tuple(undone), Receipt())

    # --- settling

    async def settle(self, settlements: tuple[Settlement, ...], receipt: Receipt[Any]) -> None:
        """Write debts and credits; the receipt tells which of them are committed."""
        if settlements:
            charging = self.charging
            await charging.buckets.settle(
                charging.namespace_id, settlements, charging.clock, receipt, self.raise_threshold
            )

    def raise_threshold(self, crossing: Crossing) -> None:
        """Log a threshold that the store has marked because of this call, and tell the hooks."""
        from zae_limiter.hooks import raise_threshold  # few calls cross a threshold

        raise_threshold(self.observer, crossing)

    def raise_exhausted(self, exhaustion: Exhaustion) -> None:
        """Log a quota that the store has marked because of this call, and tell the hooks."""
        from zae_limiter.hooks import raise_exhausted  # few calls exhaust a quota

        raise_exhausted(self.observer, exhaustion)

    async def settle_quietly(
        self,
        settlements: tuple[Settlement, ...],
        receipt: Receipt[Any],
        quotas: Iterable[HeldQuotas] = (),
        on_stored: Callable[[], None] | None = None,
    ) -> bool:
        """Settle, and return whether all is stored. No error is raised: nobody could handle it.

        What is not stored is repeated in the background, and ``quotas`` are renewed meanwhile.
        ``on_stored`` is called if it is stored then. After an interrupt this may be called again
        with the same receipt.
        """
        error: Exception | None = None
        charging = self.charging
        if not receipt.has_outcome:
            try:
                if charging.breaker.is_open:
                    charging.breaker.check()  # sent into an outage, its outcome would not be known
                await self.settle(settlements, receipt)
            except Exception as failure:  # noqa: BLE001 - the block has ended
                error = failure
        if error is None and not (receipt.has_outcome and receipt.outcome):
            if charging.pending_ends:  # perhaps those of an event loop that was closed
                charging.pending_ends.arm()
            return True
        return self._hand_over(settlements, receipt, quotas, on_stored, error)

    def _hand_over(
        self,
        settlements: tuple[Settlement, ...],
        receipt: Receipt[Any],
        quotas: Iterable[HeldQuotas],
        on_stored: Callable[[], None] | None,
        error: Exception | None,
    ) -> bool:
        """Repeat in the background what is not stored; return False if there is anything."""
        from zae_limiter._async.pending_ends import PendingEnd, left_after

        end = receipt.outcome
        if not isinstance(end, PendingEnd):
            left = left_after(receipt, settlements, error)
            if not left:
                return True
            # Noted before it is repeated: an interrupted caller must not write it once more.
            end = receipt.outcome = PendingEnd(self, left, quotas, on_stored, error)
        self.charging.pending_ends.add(end)
        return False

    def repeat_unsettled(
        self, receipt: Receipt[Any], settlements: Iterable[Settlement], error: BaseException
    ) -> list[Settlement]:
        """See to what a write in the middle of the block has not stored for certain.

        What was certainly not made is returned: the next write brings its quotas, which need their
        holds, and its rates are repeated in the background. What is in doubt counts as made. It is
        looked up in the background, and made then if it was not.
        """
        from zae_limiter._async.pending_ends import PendingEnd, left_after
        from zae_limiter._async.ports import Unsettled

        left = left_after(receipt, settlements, error) if receipt.has_outcome else []
        refused = [each.settlement for each in left if each.doubt is None]
        doubtful = [each for each in left if each.doubt is not None]
        later = [Unsettled(replace(each, quotas=())) for each in refused if each.amounts_milli]
        later += [each._replace(settlement=each.settlement.apart()) for each in doubtful]
        if later:
            self.charging.pending_ends.add(PendingEnd(self, later, error=error))
        return refused


@cache
def _logger() -> QuietLogger:
    from zae_limiter.quiet_logging import quiet_logger

    return quiet_logger(__name__)


def _log_rejection(call: AcquireCall, rejected: RateLimitExceeded) -> None:
    worst = rejected.primary_violation
    if worst is not None:
        _logger().debug(
            "%r on %r was rejected: %s of %r has %s of %s requested; retry after %.3f s",
            call.entity_id,
            call.resource,
            worst.limit_name,
            worst.entity_id,
            worst.available,
            worst.requested,
            rejected.retry_after_seconds,
        )
