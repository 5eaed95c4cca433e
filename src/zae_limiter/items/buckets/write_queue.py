"""The write queue of each item: which caller writes now, and which ones wait.

While a write to an item is in flight, callers wait and share the next write (group commit). There
are no timers: a caller that finds no write in flight becomes the leader at once, and so does one
that arrives more than ``APART_S`` after the last write was sent, so that callers on a slow network
do not wait for a second round trip. Only one write with reservations is in flight at a time: the
order of these writes is the order in which callers are served.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.stored.keys import ShardId
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.runtime.waiter import Wakeable
from zae_limiter.store_errors import NotSent

# Keeps the work of one write, from its plan to the last caller that it wakes, below 10 ms.
MAX_GROUP = 250
APART_S = 0.005  # after that long since the last write was sent, another is sent in parallel
MAX_IN_FLIGHT = 16  # writes to one item at the same time; more would only conflict
LOST_S = 60.0  # a leader that is silent for this long is considered dead


class _Queue:
    """The queue of one item. It starts with one write in flight.

    ``waiting`` is made late: most items never have waiters. It keeps the order of arrival, and a
    waiter anywhere in it is found and removed at once: 10,000 of 20,000 waiters may be cancelled in
    one moment.
    """

    __slots__ = ("in_flight", "reserving", "sent_s", "waiting")

    def __init__(self, now_s: float, leader: PendingChange) -> None:
        self.waiting: OrderedDict[PendingChange, None] | None = None
        self.in_flight = 1
        self.sent_s = now_s
        # the leader of a write with reservations
        self.reserving = None if leader.change.until_ms is None else leader


class WriteQueues:
    """One queue per item with a write in flight. Shared by all tasks and threads."""

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._now_s = now_s or time.monotonic  # looked up now: a test may have replaced it
        self._queues: dict[ShardId, _Queue] = {}
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._queues = {}  # the parent's leaders do not exist in the child

    def join(self, pending: PendingChange, waiter: Callable[[], Wakeable]) -> bool:
        """Return True if the caller leads a write now; otherwise a leader will wake it."""
        with self._lock:
            queue, now_s = self._queues.get(pending.shard_id), self._now_s()
            if queue is None:
                self._queues[pending.shard_id] = _Queue(now_s, pending)
                return True
            if now_s - queue.sent_s > LOST_S:
                queue.in_flight, queue.reserving = 0, None
            reserves = pending.change.until_ms is not None
            if queue.in_flight and (
                queue.waiting
                or now_s - queue.sent_s < APART_S
                or queue.in_flight >= MAX_IN_FLIGHT
                or (reserves and queue.reserving is not None)
            ):
                pending.waiter = waiter()
                if queue.waiting is None:
                    queue.waiting = OrderedDict()
                queue.waiting[pending] = None
                return False
            queue.in_flight += 1
            queue.sent_s = now_s
            if reserves:
                queue.reserving = pending
            return True

    def take_group(self, leader: PendingChange) -> list[PendingChange]:
        """Return the leader and all waiters that can share its write, in the order of arrival."""
        with self._lock:
            queue, now_s = self._queues.get(leader.shard_id), self._now_s()
            if queue is None:  # the leader was considered dead, and its queue is gone
                self._queues[leader.shard_id] = _Queue(now_s, leader)
                return [leader]
            queue.sent_s = now_s
            if not queue.waiting:
                return [leader]
            followers = []
            others_reserve = queue.reserving is not None and queue.reserving is not leader
            for pending in queue.waiting:
                reserves = pending.change.until_ms is not None
                if pending.can_share_write(leader) and not (reserves and others_reserve):
                    followers.append(pending)
                    if reserves:
                        queue.reserving = leader
                    if len(followers) == MAX_GROUP - 1:
                        break
            if len(followers) == len(queue.waiting):  # the usual case
                queue.waiting = None
            else:
                for pending in followers:
                    del queue.waiting[pending]
            return [leader, *followers]

    def leave(self, leader: PendingChange) -> None:
        """End the leader's write; the caller that has waited longest leads the next one."""
        with self._lock:
            queue = self._queues.get(leader.shard_id)
            if queue is None:
                return
            if queue.reserving is leader:
                queue.reserving = None
            if queue.waiting and _hand_over(queue):
                return
            queue.in_flight -= 1
            if queue.in_flight <= 0:
                del self._queues[leader.shard_id]

    def withdraw(self, pending: PendingChange) -> bool:
        """Stop waiting; False if a leader has taken the change into its write already."""
        with self._lock:
            queue = self._queues.get(pending.shard_id)
            if queue is None or not queue.waiting or pending not in queue.waiting:
                return False
            del queue.waiting[pending]
            return True

    def give_up(self, pending: PendingChange) -> bool:
        """Stop waiting for a leader that is dead; the next waiter leads in its place."""
        with self._lock:
            if not self.withdraw(pending):
                return False
            queue = self._queues[pending.shard_id]
            queue.reserving = None
            queue.in_flight = int(_hand_over(queue))
            if not queue.in_flight:
                del self._queues[pending.shard_id]
            return True


def _hand_over(queue: _Queue) -> bool:
    """Wake the caller that has waited longest, to lead; False if none is left.

    A caller that reserves waits until the write with reservations that is in flight has ended.
    """
    while queue.waiting:
        heir = next(iter(queue.waiting))
        reserves = heir.change.until_ms is not None
        if reserves and queue.reserving is not None:
            return False
        del queue.waiting[heir]
        if heir.deadline.is_nearly_over():  # its followers would fail with it
            heir.outcome = NotSent("the write queue of this bucket was too long; try again")
            heir.wake()
        elif heir.wake():
            if reserves:
                queue.reserving = heir
            return True
    return False
