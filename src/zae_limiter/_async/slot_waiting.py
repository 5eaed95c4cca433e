"""Acquires that wait for slots: nothing can be reserved, since no call says when it will end.

Callers of a process wait in the order of arrival. Only the head of their queue looks at the bucket,
now and then and whenever a lease of this process gives slots back, and asks if they are free.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf

from zae_limiter._async.waiting_charge import PAUSE_LOOK_S, Taken, WaitingCharge
from zae_limiter.admission.charge import statuses, under_limits
from zae_limiter.admission.request import Grant, Rejection
from zae_limiter.admission.reservation import longest_pause_s
from zae_limiter.concurrency.waiter import AWaiter
from zae_limiter.concurrency.waiting_line import Sleeper
from zae_limiter.models.status import LimitStatus

# Between two looks: short at first, for calls that end soon; each is a read, so then seldom.
LEAST_LOOK_S, MOST_LOOK_S = 0.05, 2.0
SPREAD = (0.5, 1.0)  # processes that wait for the same slot do not look at the same moment


class SlotWaiting(WaitingCharge):
    """A charge that waits for slots, and for the rates of their buckets with them."""

    async def charge(self, entity_ids: Sequence[str]) -> Grant:
        """Return when all buckets of the call have granted it; raise at the deadline."""
        key, lines, pause_s = (entity_ids[0], self._call.resource), self._lines, LEAST_LOOK_S
        queued, asks = Sleeper(key), True
        try:
            if lines.has_queue(key):
                lines.enter_queue(queued)
                await self._sleep_in_queue(queued, None)
            while True:
                waiter = lines.prepare(queued, AWaiter)  # first: slots may return meanwhile
                outcome = await (self._ask(None, Taken()) if asks else self._seen_all())
                if isinstance(outcome, Grant):
                    return outcome
                asks = not any(status.exceeded for status in outcome.statuses)
                if asks:
                    continue
                seconds = self._pause_s(outcome.statuses, pause_s)
                lines.enter_queue(queued)
                if not lines.is_head(queued):
                    await self._sleep_in_queue(queued, None)
                    continue
                woken = await self._sleep(waiter, seconds)
                asks = self._time.left_s() <= 0  # once more: the deadline is no reason to reject
                pause_s = LEAST_LOOK_S if woken else min(MOST_LOOK_S, 2 * pause_s)
        finally:
            lines.leave(queued)

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
