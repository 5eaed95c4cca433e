"""The callers of this process that wait for tokens of a bucket.

A caller with a reservation sleeps until that is due. Dues only move forward: when tokens are given
back before it, or when a later image of the bucket shows that they were. A caller that cannot
reserve yet waits in the local queue of its bucket; only the head of the queue asks the store.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable
from itertools import count
from typing import TypeVar

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import Grant
from zae_limiter.admission.reservation import Reservation
from zae_limiter.concurrency.locks import SignalSafeLock, renew_after_fork
from zae_limiter.concurrency.waiter import Wakeable

W = TypeVar("W", bound=Wakeable)


class Sleeper:
    """A caller that sleeps: until its reservation is due, or until it is the head of its queue.

    ``key`` is that of its line. It is made before it joins that, so that a caller which is
    interrupted meanwhile can leave. ``paused_until_ms`` is that of the pause that it waits for in
    the queue; 0 if there is none. ``number`` is that of its arrival in the queue.
    """

    __slots__ = ("due_ms", "key", "number", "paused_until_ms", "reservation", "waiter")

    def __init__(self, key: Hashable, reservation: Reservation | None = None) -> None:
        self.key = key
        self.reservation = reservation
        self.due_ms = 0 if reservation is None else reservation.due_ms
        self.waiter: Wakeable | None = None
        self.paused_until_ms = self.number = 0

    def wake(self) -> None:
        if self.waiter is not None:
            self.waiter.wake()

    def move_up(self, raised: Reservation, now_ms: int) -> None:
        """Move the due forward to that of the reservation with other balances.

        That may be a moment in the past, at which the caller could not know it: it is due now.
        """
        due_ms = max(now_ms, raised.due_ms)
        if due_ms < self.due_ms:
            self.due_ms = due_ms
            self.wake()


class WaitingLine:
    """Callers that wait for one bucket or shard: those with a reservation, and the local queue.

    ``reserved`` is in the order of the writes, which is the order of service. ``watcher`` is the
    one of them that reads the bucket now and then, for all.
    """

    def __init__(self) -> None:
        self.reserved: list[Sleeper] = []
        self.queue: list[Sleeper] = []
        self.watcher: Sleeper | None = None

    def add(self, sleeper: Sleeper, now_ms: int) -> None:
        """Add a reservation. Its image may show that tokens were given back before."""
        reservation = sleeper.reservation
        assert reservation is not None
        last = self.reserved[-1] if self.reserved else None
        insort(self.reserved, sleeper, key=_place)
        if last is not None and _shows_more(last, reservation):
            self.see(reservation.image, now_ms)

    def remove(self, sleeper: Sleeper) -> None:
        """Remove a caller that goes on, or gives up. Another one watches in its place."""
        if sleeper in self.reserved:
            self.reserved.remove(sleeper)
        if self.watcher is sleeper:
            self.watcher = None
            if self.reserved:
                self.reserved[-1].wake()

    def see(self, image: BucketImage, now_ms: int) -> None:
        """Move dues forward as far as an image of the bucket allows.

        What this process has charged behind a caller does not count against it. What other
        processes have charged there does, since the image does not show their order: a due may
        stay later than it could be, and never moves too far forward. An image that is older than a
        reservation says nothing of it, nor does one with other limits.
        """
        behind: dict[str, int] = {}
        for sleeper in reversed(self.reserved):
            reservation = sleeper.reservation
            assert reservation is not None
            if reservation.place[0] > image.writes:
                continue
            balances = {
                key: image.limits[key].balance_milli + behind.get(key, 0)
                for key, state in reservation.limits.items()
                if key in image.limits and image.limits[key].rate == state.rate
            }
            if len(balances) == len(reservation.limits):
                sleeper.move_up(reservation.with_balances(balances), now_ms)
            for key in reservation.limits:
                behind[key] = behind.get(key, 0) + reservation.amounts_milli[key]

    def given_back(self, withdrawn: Reservation, now_ms: int) -> None:
        """Move up the callers behind a reservation whose tokens were credited.

        It has been removed before the credit was sent: an image that shows the credit must not
        count its charge as one that is still behind others. What images have shown is not added up
        with this: they may show the same credit.
        """
        for sleeper in self.reserved:
            reservation = sleeper.reservation
            assert reservation is not None
            if reservation.place > withdrawn.place:
                balances = {
                    key: state.balance_milli + withdrawn.amounts_milli.get(key, 0)
                    for key, state in reservation.limits.items()
                }
                sleeper.reservation = reservation.with_balances(balances)
                sleeper.move_up(sleeper.reservation, now_ms)

    def is_empty(self) -> bool:
        return not self.reserved and not self.queue


def _place(sleeper: Sleeper) -> tuple[int, int]:
    assert sleeper.reservation is not None
    return sleeper.reservation.place


def _shows_more(last: Sleeper, newer: Reservation) -> bool:
    """Tell whether the caller before a new reservation would move up by its image.

    If not, no caller further ahead would either: what was given back before the last one has been
    seen with its own image.
    """
    assert last.reservation is not None
    if newer.place < last.reservation.place:
        return False
    for key, state in last.reservation.limits.items():
        after = newer.image.limits.get(key)
        if after is not None:
            charged = newer.amounts_milli.get(key, 0)
            if after.balance_milli + charged > state.balance_milli:
                return True
    return False


def line_key(grant: Grant) -> Hashable:
    """Return the key of the line of a shard; the local queue of a bucket has one without it."""
    charge, reservation = grant.charges[0], grant.reservation
    number = 0 if reservation is None else reservation.shard.number
    return charge.entity_id, charge.resource, number


class WaitingLines:
    """The lines of all buckets that callers of this process wait for. Shared by tasks and threads.

    What is done under the lock takes microseconds.
    """

    def __init__(self) -> None:
        self._lock = SignalSafeLock()
        self._lines: dict[Hashable, WaitingLine] = {}
        self._arrivals = count(1)
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lines = {}  # the parent's callers do not wait in the child

    def __len__(self) -> int:
        return len(self._lines)

    def reserve(self, sleeper: Sleeper, now_ms: int) -> None:
        """Add a caller with a reservation."""
        with self._lock:
            self._line(sleeper).add(sleeper, now_ms)

    def enter_queue(self, sleeper: Sleeper) -> None:
        """Add a caller to the local queue, unless it is in it.

        It asks after those before it, and so waits for the same pause as their head.
        """
        with self._lock:
            queue = self._line(sleeper).queue
            if sleeper not in queue:
                sleeper.number = next(self._arrivals)
                if queue:
                    sleeper.paused_until_ms = queue[0].paused_until_ms
                queue.append(sleeper)

    def let_pass(self, sleeper: Sleeper, now_ms: int) -> None:
        """Let callers whose pause is over ask before one that cannot reserve yet, pause or not.

        Otherwise the order is that of arrival.
        """
        with self._lock:
            sleeper.paused_until_ms = 0
            queue = self._line(sleeper).queue
            queue.sort(key=lambda each: (not 0 < each.paused_until_ms <= now_ms, each.number))
            if queue[0] is not sleeper:
                queue[0].wake()

    def end_pause(self, sleeper: Sleeper, now_ms: int) -> None:
        """Let the callers of a queue ask in turn, after one has seen that a pause was lifted."""
        with self._lock:
            for each in self._line(sleeper).queue:
                each.paused_until_ms = min(each.paused_until_ms, now_ms)

    def has_queue(self, key: Hashable) -> bool:
        line = self._lines.get(key)
        return line is not None and bool(line.queue)

    def resumes(self, key: Hashable, now_ms: int) -> bool:
        """Tell whether a pause is over, and callers that it has held back ask one by one."""
        line = self._lines.get(key)
        head = line.queue[:1] if line is not None else []
        return any(0 < each.paused_until_ms <= now_ms for each in head)

    def waiting(self, key: Hashable) -> int:
        """Return how many callers are in a local queue."""
        line = self._lines.get(key)
        return 0 if line is None else len(line.queue)

    def is_head(self, sleeper: Sleeper) -> bool:
        """Tell whether a caller is the first one in the local queue."""
        with self._lock:
            return self._line(sleeper).queue[:1] == [sleeper]

    def leave(self, sleeper: Sleeper) -> None:
        """Remove a caller, whichever way it waited, if it did; wake the next head of the queue."""
        with self._lock:
            line = self._lines.get(sleeper.key)
            if line is None:
                return
            if sleeper in line.queue:
                was_head = line.queue[0] is sleeper
                line.queue.remove(sleeper)
                if was_head and line.queue:
                    line.queue[0].wake()
            else:
                line.remove(sleeper)
            if line.is_empty():
                del self._lines[sleeper.key]

    def prepare(self, sleeper: Sleeper, waiter: Callable[[], W]) -> W:
        """Return the event that will wake a caller; to be made before its due is looked at."""
        with self._lock:
            sleeper.waiter = event = waiter()
            return event

    def watches(self, sleeper: Sleeper) -> bool:
        """Tell whether a caller watches the bucket; it does if no other one does."""
        with self._lock:
            line = self._line(sleeper)
            if line.watcher is None:
                line.watcher = sleeper
            return line.watcher is sleeper

    def slots_returned(self, grant: Grant) -> None:
        """Wake the callers that look for slots of the buckets of a grant."""
        with self._lock:
            for charge in grant.charges:
                line = self._lines.get((charge.entity_id, charge.resource))
                if line is not None and line.queue:
                    line.queue[0].wake()

    def given_back(self, grant: Grant, now_ms: int) -> None:
        """Move up the callers behind a charge that was credited."""
        with self._lock:
            line = self._lines.get(line_key(grant))
            if line is not None and grant.reservation is not None:
                line.given_back(grant.reservation, now_ms)

    def see(self, sleeper: Sleeper, image: BucketImage, now_ms: int) -> None:
        """Show an image of the bucket to its line."""
        with self._lock:
            self._line(sleeper).see(image, now_ms)

    def _line(self, sleeper: Sleeper) -> WaitingLine:
        line = self._lines.get(sleeper.key)
        if line is None:
            line = self._lines[sleeper.key] = WaitingLine()
        return line
