"""Acquires that wait for slots. They cannot reserve, since no call knows when it will end.

The callers of a process wait in the order of arrival, whichever repository of the store they use.
If they share a parent with slots, this holds for the callers of all its children together. Only the
first caller looks at the buckets, now and then and whenever a lease of this process gives slots
back, and asks for slots when they are free. A caller that its own bucket rejects steps aside, so
that its siblings can take the parent's slots.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from zae_limiter._async.waiting_charge import PAUSE_LOOK_S, Taken, WaitingCharge
from zae_limiter.admission.request import Grant, Rejection
from zae_limiter.admission.reservation import longest_pause_s
from zae_limiter.admission.slots import RETRY_S
from zae_limiter.models.status import LimitStatus
from zae_limiter.runtime.waiter import ALineWaiter
from zae_limiter.waiting.line import Sleeper
from zae_limiter.waiting.lines import WaitingLines

# The time between two looks. It is short at first, for calls that end soon, and then becomes
# longer, since each look is a read.
LEAST_LOOK_S, MOST_LOOK_S = 0.05, 2.0
SPREAD = (0.5, 1.0)  # random, so that processes do not look at the same moment


class SlotWaiting(WaitingCharge):
    """A charge that waits for slots, and for the tokens of the same buckets."""

    def _lines_to_join(self) -> WaitingLines:
        return self._charging.slot_lines

    async def grant(self) -> Grant:
        """Return when all buckets of the call have granted it; raise at the deadline."""
        lines, queued, pause_s = self._lines, self._arrive(), LEAST_LOOK_S
        asks, has_seen_room = True, False
        try:
            if lines.has_queue(queued.key, queued.parent_key):
                lines.enter_queue(queued)
            while True:
                await self._sleep_in_queue(queued, None)
                # Prepared before the look, since slots may return meanwhile.
                waiter = lines.prepare(queued, ALineWaiter)
                asks = asks and not queued.is_aside and lines.is_head(queued)
                listed: Sequence[LimitStatus]
                if asks:
                    outcome = await self._ask(Taken())
                    if isinstance(outcome, Rejection) and has_seen_room:
                        # This repository may remember a rejection from before another gave back.
                        outcome = await self._ask(Taken(), reads_first=True)
                    if isinstance(outcome, Grant):
                        return outcome
                    listed = outcome.statuses
                else:
                    listed = await self._call.look()
                refusing = {each.entity_id for each in listed if each.exceeded}
                has_seen_room = not refusing
                if has_seen_room:
                    asks = self._has_turn(queued, listed)
                    continue
                seconds = self._pause_s(listed, pause_s)
                lines.step_aside(queued, is_aside=self._call.entity_id in refusing)
                lines.enter_queue(queued)
                asks = False
                if lines.is_head(queued):
                    queued.rest(seconds)
                    woken = await self._sleep(waiter, seconds)
                    asks = self._time.left_s() <= 0  # at the deadline it asks for the last time
                    pause_s = LEAST_LOOK_S if woken else min(MOST_LOOK_S, 2 * pause_s)
        finally:
            lines.leave(queued)

    def _arrive(self) -> Sleeper:
        """Return the sleeper of this caller, with the number of its arrival."""
        scope = self._call.scopes[0]
        queued = self._sleeper((scope.buckets[0][0], scope.resource))
        for entity_id, in_force in scope.buckets[1:]:
            if in_force.slot_keys:
                queued.parent_key = (entity_id, scope.resource)
        self._lines.arrive(queued)
        return queued

    def _has_turn(self, queued: Sleeper, listed: Sequence[LimitStatus]) -> bool:
        """Tell whether a caller may take free slots: it may if it is the first that waits.

        At the deadline, raise RateLimitExceeded if others wait before it. If each caller took a
        slot at its deadline, those before it would starve.
        """
        self._lines.step_aside(queued, is_aside=False)
        if self._lines.is_head(queued):
            return True
        if self._time.left_s() <= 0:
            raise self._rejected(behind_others(listed))
        return False

    def _pause_s(self, listed: Sequence[LimitStatus], pause_s: float) -> float:
        """Return the seconds to wait; raise if the tokens or slots will not be there in time."""
        seconds = seconds_to_wait(listed, self._time.left_s(), pause_s)
        if seconds is None:
            raise self._rejected(listed)
        return seconds


def seconds_to_wait(listed: Sequence[LimitStatus], left_s: float, look_s: float) -> float | None:
    """Return the seconds to wait; None if the tokens or slots will not be there in time.

    ``left_s`` are the seconds until the deadline, ``look_s`` the time between two looks for slots.
    """
    longest_s, paused_s = 0.0, longest_pause_s(listed)
    for status in listed:
        if status.exceeded:
            wait_s = status.retry_after_seconds
            if status.limit.is_concurrent and wait_s < inf:  # a call may end at any moment
                at_most_s = min(left_s, look_s * random.uniform(*SPREAD))
                wait_s = status.paused_seconds or at_most_s
            if left_s <= 0 or wait_s > left_s:
                return None
            longest_s = max(longest_s, wait_s)
    if paused_s:  # the pause may be lifted
        longest_s = min(longest_s, PAUSE_LOOK_S)
    return min(left_s, longest_s)


def behind_others(listed: Sequence[LimitStatus]) -> list[LimitStatus]:
    """Return the statuses for a caller behind others, to whom the free slots belong.

    Where all slots are soft the others wait for tokens, which then belong to them.
    """
    asked = [each for each in listed if each.requested and not each.limit.soft]
    slots = [each for each in asked if each.limit.is_concurrent]
    theirs = slots or asked
    return [
        replace(each, available=0, exceeded=True, retry_after_seconds=RETRY_S)
        if each in theirs
        else each
        for each in listed
    ]
