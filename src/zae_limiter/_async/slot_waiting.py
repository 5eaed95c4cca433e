"""Acquires that wait for slots: nothing can be reserved, since no call says when it will end.

Callers of a process wait in the order of arrival, those of all children for the slots of their
parent as well. Only the first of them looks at the buckets, now and then and whenever a lease of
this process gives slots back, and asks if they are free. A caller whose own bucket refuses it steps
aside: it does not keep its siblings from slots that it could not use.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from zae_limiter._async.waiting_charge import PAUSE_LOOK_S, Taken, WaitingCharge
from zae_limiter.admission.charge import statuses, under_limits
from zae_limiter.admission.request import Grant, Rejection
from zae_limiter.admission.reservation import longest_pause_s
from zae_limiter.admission.resolution import Scope
from zae_limiter.admission.slots import RETRY_S
from zae_limiter.concurrency.waiter import ALineWaiter
from zae_limiter.concurrency.waiting_line import Sleeper
from zae_limiter.models.status import LimitStatus

# Between two looks: short at first, for calls that end soon; each is a read, so then seldom.
LEAST_LOOK_S, MOST_LOOK_S = 0.05, 2.0
SPREAD = (0.5, 1.0)  # processes that wait for the same slot do not look at the same moment


class SlotWaiting(WaitingCharge):
    """A charge that waits for slots, and for the rates of their buckets with them."""

    async def charge(self, scope: Scope) -> Grant:
        """Return when all buckets of the call have granted it; raise at the deadline."""
        lines, queued, pause_s, asks = self._lines, self._arrive(scope), LEAST_LOOK_S, True
        try:
            if lines.has_queue(queued.key, queued.parent_key):
                lines.enter_queue(queued)
            while True:
                await self._sleep_in_queue(queued, None)
                waiter = lines.prepare(queued, ALineWaiter)  # first: slots may return meanwhile
                asks = asks and not queued.is_aside and lines.is_head(queued)
                outcome = await (self._ask(None, Taken()) if asks else self._seen_all())
                if isinstance(outcome, Grant):
                    return outcome
                refusing = {each.entity_id for each in outcome.statuses if each.exceeded}
                if not refusing:
                    asks = self._has_turn(queued, outcome.statuses)
                    continue
                seconds = self._pause_s(outcome.statuses, pause_s)
                lines.step_aside(queued, is_aside=self._call.entity_id in refusing)
                lines.enter_queue(queued)
                asks = False
                if lines.is_head(queued):
                    woken = await self._sleep(waiter, seconds)
                    asks = self._time.left_s() <= 0  # the deadline is no reason to reject
                    pause_s = LEAST_LOOK_S if woken else min(MOST_LOOK_S, 2 * pause_s)
        finally:
            lines.leave(queued)

    def _arrive(self, scope: Scope) -> Sleeper:
        """Return the sleeper of this caller, which has its number from the moment it arrives."""
        queued = self._sleeper((scope.buckets[0][0], scope.resource))
        for entity_id, in_force in scope.buckets[1:]:
            if in_force.slot_keys:
                queued.parent_key = (entity_id, scope.resource)
        self._lines.arrive(queued)
        return queued

    def _has_turn(self, queued: Sleeper, listed: Sequence[LimitStatus]) -> bool:
        """Tell whether a caller may take slots that are free: not if others wait before it.

        Raises at the deadline. A caller that took a slot then would pass those before it, and one
        after the other would starve them.
        """
        self._lines.step_aside(queued, is_aside=False)
        if self._lines.is_head(queued):
            return True
        if self._time.left_s() <= 0:
            raise self._rejected([_behind_others(status) for status in listed])
        return False

    def _pause_s(self, listed: Sequence[LimitStatus], pause_s: float) -> float:
        """Return how long to wait; raise if the tokens or slots will not be there in time."""
        left_s, shortest_s, paused_s = self._time.left_s(), 0.0, longest_pause_s(listed)
        for status in listed:
            if status.exceeded:
                wait_s = status.retry_after_seconds
                if status.limit.is_concurrent and wait_s < inf:  # a call may end at any moment
                    at_most_s = min(left_s, pause_s * random.uniform(*SPREAD))
                    wait_s = status.paused_seconds or at_most_s
                if left_s <= 0 or wait_s > left_s:
                    raise self._rejected(listed)
                shortest_s = max(shortest_s, wait_s)
        if paused_s:  # it may be lifted
            shortest_s = min(shortest_s, PAUSE_LOOK_S)
        return min(left_s, shortest_s)

    async def _seen_all(self) -> Rejection:
        """Compare all buckets with the charge, without asking for it."""
        charging = self._charging
        scope, now_ms = await charging.scope(self._call, charging.clock())
        images, charges = await charging.images(scope), scope.charges(self._amounts)
        return Rejection(
            tuple(
                [
                    status
                    for charge, image in zip(charges, images, strict=True)
                    for status in statuses(
                        charge, under_limits(image, charge.in_force, now_ms), now_ms
                    )
                ]
            )
        )


def _behind_others(status: LimitStatus) -> LimitStatus:
    """Return a status as it is for a caller behind others, to which the free slots belong."""
    if not status.limit.is_concurrent or not status.requested:
        return status
    return replace(status, available=0, exceeded=True, retry_after_seconds=RETRY_S)
