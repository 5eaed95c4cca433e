"""The base of a charge that waits: it asks the store, sleeps, and gives back its tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from zae_limiter._async.ask import AcquireCall
from zae_limiter.admission.request import (
    ChargeOutcome,
    Grant,
    Rejection,
    Settlement,
)
from zae_limiter.admission.reservation import Reservation
from zae_limiter.admission.statuses import statuses
from zae_limiter.clock import Clock
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.status import LimitStatus
from zae_limiter.runtime.calls import aturn
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.waiter import ALineWaiter
from zae_limiter.waiting.line import Sleeper
from zae_limiter.waiting.lines import WaitingLines
from zae_limiter.waiting.wait_time import Steered, WaitTime

if TYPE_CHECKING:
    pass

# The interval at which the first of the callers that wait for the end of a pause looks whether the
# pause was lifted.
PAUSE_LOOK_S = 5.0


async def sleep_for(call: AcquireCall, clock: Clock, waiter: ALineWaiter, seconds: float) -> bool:
    """Sleep, and return whether the caller was woken before the time was over.

    A clock that is moved by hand wakes the caller.
    """
    began_s, steered = monotonic(), clock if isinstance(clock, Steered) else None
    try:
        if steered is not None:
            steered.listen(waiter.wake)
        await waiter.wait(seconds)
    except TimeoutError:
        return False
    finally:
        if steered is not None:
            steered.unlisten(waiter.wake)
        call.waited_s += monotonic() - began_s
    return True


class Taken:
    """A charge that was asked for, and the settlement that gives it back or forfeits it."""

    __slots__ = ("receipt", "settled")

    def __init__(self) -> None:
        self.receipt: Receipt[ChargeOutcome] = Receipt()
        self.settled: Receipt[Any] = Receipt()

    def grant(self) -> Grant | None:
        """Return the grant if it was not given back and has not lapsed; otherwise None."""
        outcome = self.receipt.outcome
        return outcome if type(outcome) is Grant and not self.settled.has_outcome else None


class WaitingCharge:
    """The base of a charge that waits; it keeps the charges made so far for its buckets.

    ``TokenWaiting`` waits for tokens, and ``SlotWaiting`` waits for slots.
    """

    def __init__(self, call: AcquireCall, time: WaitTime) -> None:
        self._call = call
        self._time = time
        self._charging = call.charging
        self._lines = self._lines_to_join()
        self._taken: list[Taken] = []
        self._sleepers: list[Sleeper] = []

    def _lines_to_join(self) -> WaitingLines:
        """Return the lines that this caller waits in."""
        raise NotImplementedError

    async def give_back(self) -> None:
        """Refund the charges of a caller that was stopped or failed. Callers behind it move up."""
        for sleeper in self._sleepers:  # before the credit is sent, see WaitingLine.note_credit
            self._lines.leave(sleeper)
        settlements: list[Settlement] = []
        settled: Receipt[Any] = Receipt()
        returned = []
        for taken in self._taken:
            grant = taken.grant()
            if grant is None:
                continue
            returned.append(grant)
            settlements += grant.undo(admitted=1)
            taken.settled = settled
        if not settlements:
            return
        credit = self._lines.number_credit()
        is_stored = await self._call.settle_quietly(tuple(settlements), settled)
        try:
            # One write gives back for hundreds of callers; they end one by one.
            await aturn()
        finally:
            if is_stored:
                for grant in returned:
                    self._lines.note_credit(grant, credit)
                    if grant.holds:
                        self._charging.slot_lines.slots_returned(grant)

    # --- asking

    async def _ask(
        self, taken: Taken, number: int | None = None, *, reads_first: bool = False
    ) -> Grant | Rejection:
        """Reserve in the bucket with this number, or charge all buckets at once (None).

        A denied bucket is not waited for, even if the mode ends before the deadline.
        """
        self._taken.append(taken)
        until_ms = None if number is None else self._time.until_ms
        outcome = await self._call.ask(
            taken.receipt, number=number, until_ms=until_ms, reads_first=reads_first
        )
        if type(outcome) is Rejection and any(each.is_denied for each in outcome.statuses):
            raise self._rejected(outcome.statuses)
        return outcome

    # --- sleeping

    def _sleeper(self, key: Hashable, reservation: Reservation | None = None) -> Sleeper:
        sleeper = Sleeper(key, reservation)
        self._sleepers.append(sleeper)  # before it joins a line, since an interrupt may come
        return sleeper

    async def _sleep_in_queue(self, queued: Sleeper, again_ms: int | None) -> None:
        """Return at the head of the queue when it is time to ask, or at the deadline.

        A caller that may ask with the head returns as well.
        """
        queued.asks_with_head = False
        while True:
            waiter = self._lines.prepare(queued, ALineWaiter)
            if queued.asks_with_head:
                return
            seconds = self._time.left_s()
            is_head = self._lines.is_head(queued)
            if is_head:
                if again_ms is None:
                    return
                if queued.paused_until_ms:  # it becomes earlier if the pause is lifted
                    again_ms = min(again_ms, queued.paused_until_ms)
                seconds = min(seconds, self._time.seconds_to(again_ms))
            if seconds <= 0:
                return
            if not is_head:
                seconds = min(seconds, self._lines.look_s(queued))
            queued.rest(seconds)
            await self._sleep(waiter, seconds)

    async def _sleep(self, waiter: ALineWaiter, seconds: float) -> bool:
        """Sleep, and return whether the caller was woken before the time was over."""
        return await sleep_for(self._call, self._time.clock, waiter, seconds)

    # --- ending

    def _rejected(self, listed: Sequence[LimitStatus]) -> RateLimitExceeded:
        """Return the error with every limit in force; a bucket that was charged before is first."""
        now_ms, before = self._time.clock(), []
        for taken in self._taken:
            grant = taken.grant()
            if grant is not None and grant.reservation is not None:
                charge, reservation = grant.charges[0], grant.reservation
                if charge.entity_id != listed[0].entity_id:
                    before += statuses(charge, reservation.image_without_it(), now_ms)
        return self._call.rejected([*before, *listed], now_ms)
