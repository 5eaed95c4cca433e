"""The context manager that ``RateLimiter.acquire`` returns."""

from __future__ import annotations

from types import TracebackType

from zae_limiter._async.call import Call
from zae_limiter._async.lease import Held, Lease
from zae_limiter.admission.request import ChargeOutcome
from zae_limiter.exceptions import RateLimiterUnavailable


class Acquire:
    """Charges on entering; settles, or gives everything back, on leaving. For one use."""

    __slots__ = ("_call", "_consume", "_lease")

    def __init__(self, call: Call, consume: dict[str, int]) -> None:
        self._call = call
        self._consume = consume
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError("this acquire was used already; call acquire() again")
        call = self._call
        receipt: list[ChargeOutcome] = []
        try:
            grant = await call.charge(self._consume, receipt)
            self._lease = Lease(call, [Held(grant, self._consume)])
            return self._lease
        except RateLimiterUnavailable as error:
            if not call.admits_in_outage(error):
                raise
            self._lease = Lease(call, [])
            return self._lease
        except BaseException:
            # The caller never saw the lease, so nobody else can give the tokens back.
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
            await self._lease._end(failed)  # noqa: SLF001 - does nothing if it stands
            raise
