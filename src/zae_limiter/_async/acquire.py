"""One acquire: its limits in force, its charge, and the context manager around both."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from zae_limiter._async.lease import Lease
from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.charging import ChargeService
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
from zae_limiter.admission.resolution import Scope, UnknownLimit
from zae_limiter.admission.switches import denial
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.forgotten import Unentered, warn_forgotten
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.runtime.finishing import Receipt

if TYPE_CHECKING:
    from types import FrameType

    from zae_limiter._async.holds import HeldQuotas
    from zae_limiter.admission.thresholds import Crossing, Exhaustion
    from zae_limiter.hooks import Observer
    from zae_limiter.quiet_logging import QuietLogger

_DEBUG = 10  # logging.DEBUG; `import zae_limiter` does not import logging


@dataclass(eq=False, repr=False, slots=True)
class AcquireCall:
    """The arguments of one acquire, and the calls to the store that it makes.

    ``repository`` is None until it is opened by ``open_repository``. ``waited_s`` is the time for
    which an acquire with a timeout has waited.
    """

    entity_id: str
    resource: str
    limits: tuple[Limit, ...] | None
    repository: Repository | None
    open_repository: Callable[[], Awaitable[Repository]]
    prefer_stored: bool = False
    keeps_on_error: bool = False
    speculative: bool = True
    cascade: bool | None = None
    on_unavailable: OnUnavailable | None = None
    observer: Observer | None = None
    waited_s: float = 0.0

    @property
    def is_shadow(self) -> bool:
        """Whether the call is in shadow mode, in which it is never rejected and never waits."""
        return self.observer is not None and self.observer.is_shadow

    @property
    def charging(self) -> ChargeService:
        assert self.repository is not None, "the repository is opened before the first call"
        return self.repository.charging

    async def scope(self, fresh: Fresh | None = None) -> Scope:
        """Return the buckets of the call with their limits in force; ``fresh`` skips the cache."""
        if self.repository is None:
            self.repository = await self.open_repository()
        charging = self.charging
        if charging.breaker.is_open:
            charging.breaker.check()
        scope, _ = await charging.scope(self, charging.clock(), None, fresh)
        return scope

    async def charge(
        self,
        amounts: Mapping[str, int],
        receipt: Receipt[ChargeOutcome],
        *,
        is_acquire: bool = True,
    ) -> Grant:
        """Charge all buckets, or raise RateLimitExceeded. The receipt gets the outcome."""
        if self.repository is None:
            self.repository = await self.open_repository()
        charging = self.repository.charging
        clock, timeout_s, breaker = charging.clock, charging.request_timeout, charging.breaker
        if breaker.is_open:
            breaker.check()
        deadline = None if timeout_s is None else Deadline(timeout_s)
        try:
            scope, now_ms = await charging.scope(self, clock(), deadline)
            charges = scope.charges(amounts, now_ms, "consume", is_acquire)
            request = ChargeRequest(charges, clock, now_ms, deadline, is_acquire, self.speculative)
            if scope.limits.has_quotas:
                request.on_threshold = self.raise_threshold
            denied = None if scope.switches is None else denial(charges, now_ms)
            outcome = denied or await charging.buckets.charge(
                charging.namespace_id, request, receipt
            )
            if type(outcome) is StaleLimits:
                fresh = Fresh(outcome.version, now_ms)
                scope, now_ms = await charging.scope(self, clock(), deadline, fresh)
                charges = scope.charges(amounts, now_ms, "consume", is_acquire)
                request = replace(
                    request,
                    charges=charges,
                    now_ms=now_ms,
                    refreshed=True,
                    on_threshold=self.raise_threshold if scope.limits.has_quotas else None,
                )
                denied = None if scope.switches is None else denial(charges, now_ms)
                outcome = denied or await charging.buckets.charge(
                    charging.namespace_id, request, receipt
                )
        except RateLimiterUnavailable as error:
            breaker.failed(error)
            raise
        except UnknownLimit as error:
            raise await charging.explained(error) from None
        if denied is None:
            breaker.decided()
        if type(outcome) is Rejection:
            if is_acquire:
                ended = AcquireEnd(
                    resource=scope.resource,
                    buckets=scope.buckets,
                    statuses=outcome.statuses,
                    has_waited=False,
                    clock=clock,
                    is_shadowed=self.is_shadow,
                )
                await self.count(ended)
            # The error has no local name, since a reference from its own frame would be a cycle.
            raise logged(self, RateLimitExceeded(outcome.statuses, now_ms))
        assert type(outcome) is Grant
        if outcome.would_reject and is_acquire:
            ended = AcquireEnd(scope.resource, scope.buckets, (), False, clock, is_shadowed=True)
            await self.count(ended)
        return outcome

    async def count(self, ended: AcquireEnd) -> None:
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

    def repeat_refused(self, receipt: Receipt[Any]) -> list[Settlement]:
        """Return the settlements of a write that were certainly not made while others may be.

        Those of rates are repeated in the background; settlements of quotas need their holds.
        """
        left = (receipt.has_outcome and receipt.outcome) or ()
        refused = [each.settlement for each in left if each.doubt is None]
        rates = [each._replace(quotas=()) for each in refused if each.amounts_milli]
        if rates:
            from zae_limiter._async.pending_ends import PendingEnd
            from zae_limiter.admission.request import Unsettled

            end = PendingEnd(self, [Unsettled(each) for each in rates])
            self.charging.pending_ends.add(end)
        return refused

    async def give_back(self, receipt: Receipt[ChargeOutcome]) -> None:
        """Refund a committed charge whose caller was stopped before it got the answer."""
        grant = receipt.outcome
        if type(grant) is Grant:
            await self.settle_quietly(grant.undo(), Receipt())

    def admits_in_outage(self, error: RateLimiterUnavailable) -> bool:
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


@cache
def _logger() -> QuietLogger:
    from zae_limiter.quiet_logging import quiet_logger

    return quiet_logger(__name__)


def logged(call: AcquireCall, rejected: RateLimitExceeded) -> RateLimitExceeded:
    """Log a rejection at DEBUG and return it.

    Logging is not imported for this: a program that has not imported it has no handlers either.
    """
    if "logging" not in sys.modules:
        return rejected
    logger = _logger()
    if logger.isEnabledFor(_DEBUG) and (worst := rejected.primary_violation) is not None:
        logger.debug(
            "%r on %r was rejected: %s of %r has %s of %s requested; retry after %.3f s",
            call.entity_id,
            call.resource,
            worst.limit_name,
            worst.entity_id,
            worst.available,
            worst.requested,
            rejected.retry_after_seconds,
        )
    return rejected


_FORGOTTEN = (
    "{}({!r} on {!r}, {}) was never entered, "
    "so it took no tokens: write `async with limiter.acquire(...):`"
)


class Acquire:
    """The context manager that ``RateLimiter.acquire`` returns. It can be used once.

    It charges on entering. On leaving it writes adjustments and settled amounts. If the block has
    raised, it refunds all but the settled amounts; with ``on_error="keep"`` it refunds nothing.
    """

    __slots__ = ("__weakref__", "_call", "_consume", "_lease", "_unentered")

    def __init__(self, call: AcquireCall, consume: dict[str, int], caller: FrameType) -> None:
        self._call = call
        self._consume = consume
        self._lease: Lease | None = None
        noticed = Unentered(self, warn_forgotten)
        noticed.text = _FORGOTTEN
        noticed.about = (type(self).__name__, call.entity_id, call.resource, consume)
        noticed.code, noticed.instruction = caller.f_code, caller.f_lasti
        self._unentered: Unentered | None = noticed  # None once it was entered

    def __repr__(self) -> str:
        call = self._call
        return f"{type(self).__name__}({call.entity_id!r} on {call.resource!r}, {self._consume})"

    def __aenter__(self) -> Coroutine[Any, Any, Lease]:
        self._unentered = None  # at once, since the coroutine may be cancelled before it begins
        return self._enter()

    async def _enter(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError("this acquire was used already; call acquire() again")
        call = self._call
        if call.observer is not None:
            return await self._enter_observed(call.observer)
        receipt: Receipt[ChargeOutcome] = Receipt()
        try:
            grant = await call.charge(self._consume, receipt)
            self._lease = Lease(call, grant, self._consume)
            if grant.holds or grant.quota_holds:
                self._lease._hold(grant)  # noqa: SLF001 - for us alone
            return self._lease
        except RateLimiterUnavailable as error:
            if not call.admits_in_outage(error):
                raise
            self._lease = Lease(call, None, {})
            return self._lease
        except BaseException:
            # The caller never got the lease, so only this place can refund the charge.
            await call.give_back(receipt)
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._lease is not None
        failed = exc_type is not None
        try:
            await self._lease._end(failed)  # noqa: SLF001 - for us alone
        except BaseException:
            await self._lease._end(failed)  # noqa: SLF001 - does nothing if the end is committed
            raise
        if self._call.observer is not None:
            self._lease._report(failed)  # noqa: SLF001

    async def _enter_observed(self, observer: Observer) -> Lease:
        """Enter in shadow mode, or with hooks."""
        call, consume = self._call, self._consume
        receipt: Receipt[ChargeOutcome] = Receipt()
        watch = observer.watch(call.entity_id, call.resource)
        try:
            grant = await call.charge(consume, receipt)
            lease = self._lease = Lease(call, grant, consume, watch)
            if grant.holds or grant.quota_holds:
                lease._hold(grant)  # noqa: SLF001 - for us alone
            if observer.has_hooks:
                watch.waited_s = call.waited_s
                watch.acquired(consume, lease.statuses, cascade=len(grant.charges) > 1)
            if grant.would_reject:
                watch.overdrawn(consume, lease.statuses)
        except RateLimitExceeded as rejected:
            watch.waited_s = call.waited_s
            if not watch.rejected(consume, rejected):
                raise
            lease = self._lease = Lease(call, None, {}, watch)
        except RateLimiterUnavailable as error:
            if not watch.failed(error, admitted=call.admits_in_outage(error)):
                raise
            lease = self._lease = Lease(call, None, {}, watch)
        except BaseException:
            await call.give_back(receipt)
            raise
        return lease
