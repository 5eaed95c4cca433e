"""One acquire: the limits that apply, the charge, and the context manager around both."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from types import TracebackType

from zae_limiter._async.lease import HeldCharge, Lease, negated
from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.charging import ChargeService
from zae_limiter._async.repository.config_reads import Fresh
from zae_limiter.admission.request import (
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.clock import Deadline
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.resolution import Scope


class AcquireCall:
    """What one acquire asks for. Does not change once the repository is open."""

    __slots__ = (
        "cascade",
        "entity_id",
        "limits",
        "on_unavailable",
        "open_repository",
        "prefer_stored",
        "repository",
        "resource",
        "speculative",
    )

    def __init__(
        self,
        entity_id: str,
        resource: str,
        limits: tuple[Limit, ...] | None,
        *,
        repository: Repository | None,
        open_repository: Callable[[], Awaitable[Repository]],
        prefer_stored: bool = False,
        cascade: bool | None = None,
        on_unavailable: OnUnavailable | None = None,
        speculative: bool = True,
    ) -> None:
        self.entity_id = entity_id
        self.resource = resource
        self.limits = limits
        self.repository = repository
        self.open_repository = open_repository
        self.prefer_stored = prefer_stored
        self.cascade = cascade
        self.on_unavailable = on_unavailable
        self.speculative = speculative

    @property
    def charging(self) -> ChargeService:
        assert self.repository is not None, "opened before anything is asked of it"
        return self.repository.charging

    async def scope(self, fresh: Fresh | None = None) -> Scope:
        """Return the buckets of the call and their limits in force; ``fresh`` skips the cache."""
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
        """Charge all buckets or none; raise RateLimitExceeded. The receipt holds the outcome."""
        if self.repository is None:
            self.repository = await self.open_repository()
        charging = self.repository.charging
        clock, timeout_s, breaker = charging.clock, charging.request_timeout, charging.breaker
        if breaker.is_open:
            breaker.check()
        deadline = None if timeout_s is None else Deadline(timeout_s)  # of all that follows
        try:
            scope, now_ms = await charging.scope(self, clock(), deadline)
            request = ChargeRequest(
                scope.charges(amounts), clock, now_ms, False, is_acquire, self.speculative, deadline
            )
            outcome = await charging.buckets.charge(charging.namespace_id, request, receipt)
            if type(outcome) is StaleLimits:
                fresh = Fresh(outcome.version, now_ms)
                scope, now_ms = await charging.scope(self, clock(), deadline, fresh)
                request = ChargeRequest(
                    scope.charges(amounts),
                    clock,
                    now_ms,
                    True,
                    is_acquire,
                    self.speculative,
                    deadline,
                )
                outcome = await charging.buckets.charge(charging.namespace_id, request, receipt)
        except RateLimiterUnavailable as error:
            breaker.failed(error)
            raise
        breaker.answered_s = monotonic()
        if type(outcome) is Rejection:
            rejected = RateLimitExceeded(outcome.statuses)
            _log_rejection(self, rejected)
            raise rejected
        assert type(outcome) is Grant
        return outcome

    async def settle(self, settlements: tuple[Settlement, ...], receipt: Receipt[None]) -> None:
        """Write debts and credits; the receipt says whether they are committed."""
        if settlements:
            charging = self.charging
            await charging.buckets.settle(
                charging.namespace_id, settlements, charging.clock, receipt
            )

    async def settle_quietly(
        self, settlements: tuple[Settlement, ...], receipt: Receipt[None]
    ) -> None:
        """Settle where no caller could handle an error: it is logged and counted."""
        try:
            await self.settle(settlements, receipt)
        except Exception:
            self.charging.count_lost_settlement()
            import logging  # not before it is needed: `import zae_limiter` does without it

            logging.getLogger(__name__).exception(
                "could not settle %s for %r on %r",
                [(each.entity_id, each.amounts_milli) for each in settlements],
                self.entity_id,
                self.resource,
            )

    async def give_back(self, receipt: Receipt[ChargeOutcome], amounts: Mapping[str, int]) -> None:
        """Refund a charge that is committed although its caller was stopped before knowing."""
        if type(receipt.outcome) is Grant:
            await self.settle_quietly(receipt.outcome.settlements(negated(amounts)), Receipt())

    def admits_in_outage(self, error: RateLimiterUnavailable) -> bool:
        """Tell whether the outage policy lets the call through; name the call in the error."""
        error.entity_id, error.resource = self.entity_id, self.resource
        if self.repository is None:  # it could not even be opened
            return self.on_unavailable is OnUnavailable.ALLOW
        error.stack_name = error.stack_name or self.repository.stack_name
        if self.charging.outage_policy(self.on_unavailable) is not OnUnavailable.ALLOW:
            return False
        self.charging.count_uncharged(error)
        return True


def _log_rejection(call: AcquireCall, rejected: RateLimitExceeded) -> None:
    """Log at DEBUG, without importing logging: a program without it has no handler either."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    logger = logging.getLogger(__name__)
    worst = rejected.primary_violation
    if worst is not None and logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            "%r on %r was rejected: %s of %r has %d of %d requested; retry after %.3f s",
            call.entity_id,
            call.resource,
            worst.limit_name,
            worst.entity_id,
            worst.available,
            worst.requested,
            rejected.retry_after_seconds,
        )


class Acquire:
    """The context manager that ``RateLimiter.acquire`` returns. For one use.

    It charges on entering; on leaving it settles adjustments, or refunds everything if the block
    has raised.
    """

    __slots__ = ("_call", "_consume", "_lease")

    def __init__(self, call: AcquireCall, consume: dict[str, int]) -> None:
        self._call = call
        self._consume = consume
        self._lease: Lease | None = None

    def __repr__(self) -> str:
        call = self._call
        return f"{type(self).__name__}({call.entity_id!r} on {call.resource!r}, {self._consume})"

    async def __aenter__(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError("this acquire was used already; call acquire() again")
        call = self._call
        receipt: Receipt[ChargeOutcome] = Receipt()
        try:
            grant = await call.charge(self._consume, receipt)
            self._lease = Lease(call, [HeldCharge(grant, self._consume)])
            return self._lease
        except RateLimiterUnavailable as error:
            if not call.admits_in_outage(error):
                raise
            self._lease = Lease(call, [])
            return self._lease
        except BaseException:
            # The caller never saw the lease: only this place can refund it.
            await call.give_back(receipt, self._consume)
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
            await self._lease._end(failed)  # noqa: SLF001 - does nothing if it is committed
            raise
