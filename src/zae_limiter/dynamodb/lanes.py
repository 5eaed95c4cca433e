"""Who writes to a bucket, who waits, and who comes next.

While a write to a bucket is under way, those who come wait and travel together in the next one.
There are no timers: whoever finds nobody writing leaves at once, and so does whoever comes long
after the last one has left, so that a slow network costs no one a second round trip.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.dynamodb.member import Member, Wakeable
from zae_limiter.dynamodb.view import Spot
from zae_limiter.transport.errors import NotSent

MOST_TOGETHER = 1000
APART_S = 0.005  # who comes that long after the last departure does not wait
MOST_AT_ONCE = 16
LOST_S = 60.0  # who has not come back by then never will


class _Lane:
    __slots__ = ("left_s", "under_way", "waiting")

    def __init__(self, now_s: float) -> None:
        """With one who has just left; most lanes are never waited in."""
        self.waiting: deque[Member] | None = None
        self.under_way = 1
        self.left_s = now_s


class Lanes:
    """One lane per item in use: a bucket, or a shard of one. Shared by all tasks and threads."""

    def __init__(self) -> None:
        self._lanes: dict[Spot, _Lane] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers
        self._lanes = {}

    def join(self, member: Member, waiter: Callable[[], Wakeable]) -> bool:
        """True if the member is to write now; otherwise somebody will wake it."""
        with self._lock:
            lane, now_s = self._lanes.get(member.spot), time.monotonic()
            if lane is None:
                self._lanes[member.spot] = _Lane(now_s)
                return True
            if now_s - lane.left_s > LOST_S:
                lane.under_way = 0
            if lane.under_way and (
                lane.waiting or now_s - lane.left_s < APART_S or lane.under_way >= MOST_AT_ONCE
            ):
                member.waiter = waiter()
                if lane.waiting is None:
                    lane.waiting = deque()
                lane.waiting.append(member)
                return False
            lane.under_way += 1
            lane.left_s = now_s
            return True

    def group(self, leader: Member) -> list[Member]:
        """The leader and all who wait and go with it, in the order in which they came."""
        with self._lock:
            lane, now_s = self._lanes.get(leader.spot), time.monotonic()
            if lane is None:  # it was taken for lost
                self._lanes[leader.spot] = _Lane(now_s)
                return [leader]
            lane.left_s = now_s
            if not lane.waiting:
                return [leader]
            members, others = [leader], deque[Member]()
            for member in lane.waiting:
                together = len(members) < MOST_TOGETHER and member.goes_with(leader)
                (members if together else others).append(member)
            lane.waiting = others
            return members

    def leave(self, leader: Member) -> None:
        """The leader's write is over: the one who waits longest writes next."""
        with self._lock:
            lane = self._lanes.get(leader.spot)
            if lane is None:
                return
            if lane.waiting and _hand_over(lane):
                return
            lane.under_way -= 1
            if lane.under_way <= 0:
                del self._lanes[leader.spot]

    def withdraw(self, member: Member) -> bool:
        """Stop waiting; False if somebody has taken the member up already."""
        with self._lock:
            lane = self._lanes.get(member.spot)
            if lane is None or not lane.waiting or member not in lane.waiting:
                return False
            lane.waiting.remove(member)
            return True

    def give_up(self, member: Member) -> bool:
        """Stop waiting for those who never came back; the next one writes in their place."""
        with self._lock:
            if not self.withdraw(member):
                return False
            lane = self._lanes[member.spot]
            lane.under_way = int(_hand_over(lane))
            if not lane.under_way:
                del self._lanes[member.spot]
            return True


def _hand_over(lane: _Lane) -> bool:
    """Wake the one who waits longest, to write; False if there is nobody."""
    while lane.waiting:
        heir = lane.waiting.popleft()
        if heir.deadline.is_nearly_over():  # others must not fail with it
            heir.outcome = NotSent("others wrote to this bucket all the time; try again")
            heir.wake()
        elif heir.wake():
            return True
    return False
