"""Group commit: one write for all callers that wait for the same item."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from zae_limiter._async.engines.items.buckets.write_loop import WriteLoop
from zae_limiter.items.buckets.outcomes import Outcome
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.buckets.write_queue import WriteQueues
from zae_limiter.runtime.finishing import ashield
from zae_limiter.runtime.waiter import ALineWaiter
from zae_limiter.store_errors import NoAnswer, NotSent

GRACE_S = 0.25  # beyond its own deadline a follower waits that long for its leader's answer


class GroupCommit:
    """The first caller leads: it writes for all that wait, then hands over to the oldest waiter."""

    def __init__(self, write_loop: WriteLoop) -> None:
        self._write_loop = write_loop
        self._queues = WriteQueues()

    async def submit(self, pending: PendingChange) -> Outcome:
        """Return the outcome of a change, from its own write or from that of another leader.

        A caller that is cancelled leaves the queue. If a leader has taken its change already, or if
        the caller leads itself, the write runs to completion first, and its outcome is in
        ``pending.outcome``.
        """
        if self._queues.join(pending, ALineWaiter):
            return await ashield(partial(self._lead, [pending]))
        try:
            await _woken(pending)
        except TimeoutError:
            return self._abandon(pending)
        except BaseException:
            if not self._queues.withdraw(pending):
                await ashield(partial(self._finish, pending))
            raise
        if pending.outcome is None:  # woken to lead the next write
            return await ashield(partial(self._lead_next, pending))
        return pending.outcome

    async def _finish(self, pending: PendingChange) -> Outcome:
        """Wait for the outcome of a change that a leader has taken."""
        try:
            await _woken(pending)
        except TimeoutError:
            return self._abandon(pending)
        if pending.outcome is None:
            return await self._lead_next(pending)
        return pending.outcome

    def _abandon(self, pending: PendingChange) -> Outcome:
        """Stop waiting for a leader that is too slow, or whose event loop was closed."""
        if self._queues.give_up(pending):
            pending.outcome = NotSent("no write was made to this bucket in time; try again")
        elif pending.outcome is None:
            pending.outcome = NoAnswer("the write was abandoned; whether it was made is unknown")
        return pending.outcome

    async def _lead_next(self, pending: PendingChange) -> Outcome:
        pending.stamp_ms = None  # it is from before the wait
        return await self._lead(self._queues.take_group(pending))

    async def _lead(self, group: list[PendingChange]) -> Outcome:
        leader, outcomes = group[0], None
        stopped: Outcome = NotSent("the clock could not be read; nothing was written")
        try:
            if leader.stamp_ms is None:
                leader.stamp_ms = leader.clock()
            stopped = NoAnswer("the write was stopped; whether it was made is unknown")
            outcomes = await self._write_loop.run(group)
        finally:
            for position, pending in enumerate(group):
                pending.outcome = stopped if outcomes is None else outcomes[position]
                if pending is not leader:
                    pending.wake()
            self._queues.leave(leader)
        return outcomes[0]


def _woken(pending: PendingChange) -> Coroutine[Any, Any, None]:
    """Wait for the leader, which must be done by the follower's own deadline."""
    assert isinstance(pending.waiter, ALineWaiter)
    return pending.waiter.wait(pending.deadline.left() + GRACE_S)
