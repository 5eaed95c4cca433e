"""The context manager around one acquire: its charge, its lease, and its end."""

from __future__ import annotations

from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any

from zae_limiter._async.ask import AcquireCall
from zae_limiter._async.lease import Lease
from zae_limiter.admission.request import ChargeOutcome, Grant
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.forgotten import Unentered, warn_forgotten
from zae_limiter.runtime.finishing import Receipt

if TYPE_CHECKING:
    from types import FrameType

    from zae_limiter.hooks import AcquireWatch


_FORGOTTEN = (
    "{}({!r} on {!r}, {}) was never entered, "
    "so it took no tokens: write `async with limiter.acquire(...):`"
)


class Acquire:
    """The context manager that ``RateLimiter.acquire`` returns. It can be used once.

    It charges on entering. On leaving it writes adjustments and settled amounts. If the block has
    raised, it refunds all but the settled amounts; with ``on_error="keep"`` it refunds nothing.
    """

    __slots__ = ("__weakref__", "_call", "_lease", "_unentered")

    def __init__(self, call: AcquireCall, caller: FrameType) -> None:
        self._call = call
        self._lease: Lease | None = None
        noticed = Unentered(self, warn_forgotten)
        noticed.text = _FORGOTTEN
        noticed.about = (type(self).__name__, call.entity_id, call.resource, call.amounts)
        noticed.code, noticed.instruction = caller.f_code, caller.f_lasti
        self._unentered: Unentered | None = noticed  # None once it was entered

    def __repr__(self) -> str:
        call = self._call
        return f"{type(self).__name__}({call.entity_id!r} on {call.resource!r}, {call.amounts})"

    def __aenter__(self) -> Coroutine[Any, Any, Lease]:
        self._unentered = None  # at once, since the coroutine may be cancelled before it begins
        return self._enter()

    async def _enter(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError("this acquire was used already; call acquire() again")
        call = self._call
        watch = None if call.observer is None else call.watch()
        receipt: Receipt[ChargeOutcome] = Receipt()
        try:
            grant = await call.charge(receipt)
            lease = self._lease = _leased(call, grant, watch)
            if grant.holds or grant.quota_holds:
                lease.hold()
            if watch is not None:
                self._report_entered(lease, grant, watch)
            return lease
        except (RateLimitExceeded, RateLimiterUnavailable) as error:
            if not call.lets_through(error, watch):
                raise
        except BaseException:
            # The caller never got the lease, so only this place can refund the charge.
            await call.give_back(receipt)
            raise
        self._lease = _leased(call, None, watch)
        return self._lease

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

    def _report_entered(self, lease: Lease, grant: Grant, watch: AcquireWatch) -> None:
        call = self._call
        amounts, watch.waited_s = call.amounts, call.waited_s
        if call.observer is not None and call.observer.has_hooks:
            cascade = any(len(scope.buckets) > 1 for scope in call.scopes)
            watch.acquired(amounts, lease.statuses, cascade=cascade)
        if grant.would_reject:
            watch.overdrawn(amounts, lease.statuses)


def _leased(call: AcquireCall, grant: Grant | None, watch: AcquireWatch | None) -> Lease:
    """Return the lease of a grant; without a grant it is uncharged."""
    if not call.further:
        return Lease(call, grant, watch)
    own, *grants = [None for _ in call.parts] if grant is None else call.parts_of(grant)
    further = [
        Lease(each, part, each.watch()) for each, part in zip(call.further, grants, strict=True)
    ]
    return Lease(call, own, watch, tuple(further))
