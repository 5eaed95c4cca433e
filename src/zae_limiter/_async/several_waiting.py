"""Acquires over several resources that wait. They reserve nothing, and ask again in time.

A reservation in one resource would be useless, and harm others, if another resource refused later.
So the caller sleeps until all resources can hold its amounts, and asks again until its deadline.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zae_limiter._async.slot_waiting import LEAST_LOOK_S, MOST_LOOK_S, seconds_to_wait
from zae_limiter._async.waiting_charge import sleep_for
from zae_limiter.admission.request import ChargeOutcome, Grant, Rejection
from zae_limiter.admission.reservation import LATE_MS
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.waiter import ALineWaiter
from zae_limiter.waiting.wait_time import WaitTime

if TYPE_CHECKING:
    from zae_limiter._async.ask import AcquireCall
    from zae_limiter.models.status import LimitStatus

QUICKER_S = 0.05  # the pause after a rejection although the amounts seem to fit
# The time after the beginning of a window at which a caller asks. It is random, since all callers
# wait for the same moment.
EDGE_SPREAD_S = (0.0, 1.0)


class JointWaiting:
    """Asks for all resources, and again whenever they may hold the amounts."""

    def __init__(self, call: AcquireCall, time: WaitTime) -> None:
        self._call = call
        self._time = time
        self._receipt: Receipt[ChargeOutcome] = Receipt()  # of the last question

    async def grant(self) -> Grant:
        """Return the grant; raise at the deadline, or if the amounts cannot fit by then."""
        look_s, outcome = LEAST_LOOK_S, await self._ask()
        while type(outcome) is Rejection:
            seconds = self._seconds(outcome.statuses, look_s)
            if seconds is None:
                raise self._call.rejected(outcome.statuses, self._time.clock())
            looks = any(each.exceeded and _may_end(each) for each in outcome.statuses)
            if looks:  # a read is cheaper than charges that are refunded
                await self._sleep(seconds)
                look_s = min(MOST_LOOK_S, 2 * look_s)
                seen = await self._call.look()
                if any(each.exceeded for each in seen):
                    outcome = Rejection(seen)
                    continue
            else:
                await self._sleep_until(self._time.synchronize() + math.ceil(seconds * 1000))
            if self._time.left_s() * 1000 < -LATE_MS:
                raise self._call.rejected(outcome.statuses, self._time.clock())
            outcome = await self._ask(reads_first=looks)
        assert type(outcome) is Grant
        return outcome

    async def give_back(self) -> None:
        """Refund the charge of a caller that was stopped before it got the answer."""
        await self._call.give_back(self._receipt)

    async def _ask(self, *, reads_first: bool = False) -> Grant | Rejection:
        self._receipt = Receipt()
        return await self._call.ask(self._receipt, reads_first=reads_first)

    async def _sleep(self, seconds: float) -> None:
        await sleep_for(self._call, self._time.clock, ALineWaiter(), seconds)

    async def _sleep_until(self, moment_ms: int) -> None:
        """Sleep until a moment of the store's time, even if the clock is moved meanwhile."""
        time = self._time
        while (seconds := time.seconds_to(moment_ms)) > 0 and time.left_s() > 0:
            await self._sleep(seconds)

    def _seconds(self, listed: Sequence[LimitStatus], look_s: float) -> float | None:
        """Return the seconds to wait; None if the amounts will not fit in time.

        A denied bucket is not waited for, even if the mode ends before the deadline.
        """
        left_s = self._time.left_s()
        if left_s <= 0 or any(each.is_denied for each in listed):
            return None
        seconds = seconds_to_wait(listed, left_s, look_s)
        if seconds is not None and any(each.exceeded and each.limit.is_quota for each in listed):
            seconds += random.uniform(*EDGE_SPREAD_S)
        return None if seconds is None else min(max(seconds, QUICKER_S), left_s)


def _may_end(status: LimitStatus) -> bool:
    """Tell whether a limit may hold the amount at any moment: a call ends, a pause is lifted."""
    return status.limit.is_concurrent or status.paused_seconds > 0
