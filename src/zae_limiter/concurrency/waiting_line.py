"""The callers of this process that wait for tokens or slots of a bucket.

A caller with a reservation sleeps until that is due. Dues only move forward: when tokens are given
back before it, or when a later image of the bucket shows that they were. A caller that cannot
reserve yet waits in the local queue of its bucket; only the head of the queue asks the store.

Thousands of callers may wait for one bucket, and all may be cancelled in one moment. So a caller
joins and leaves in constant time, and the dues of a line are moved for many credits together, in
short steps, by a caller that waits anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import count
from time import monotonic
from typing import NamedTuple, TypeVar

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import Grant
from zae_limiter.admission.reservation import Reservation
from zae_limiter.concurrency.arrival_queue import ArrivalQueue
from zae_limiter.concurrency.locks import SignalSafeLock, renew_after_fork
from zae_limiter.concurrency.waiter import Wakeable

W = TypeVar("W", bound=Wakeable)

# Callers whose dues are moved at a time. To move one takes 5 µs, to let it sleep again 15 µs.
STEP = 200
# After the dues of a line were moved, the line rests for that many times as long: moving dues takes
# a small part of the CPU, however many callers give back one by one.
REST = 24


class Sleeper:
    """A caller that sleeps: until its reservation is due, or until it is the head of its queue.

    ``key`` is that of its line. It is made before it joins that, so that a caller which is
    interrupted meanwhile can leave. ``paused_until_ms`` is that of the pause that it waits for in
    the queue; 0 if there is none. ``number`` is that of its arrival in the queue.

    A caller that waits for slots of its parent, too, has the key of the parent's line in ``above``.
    It ``is_aside`` while its own bucket refuses it: then it stands in no sibling's way.

    ``missed_milli`` are credits that its line had noted before it came: its own image shows them.
    """

    __slots__ = (
        "above",
        "due_ms",
        "is_aside",
        "key",
        "missed_milli",
        "number",
        "paused_until_ms",
        "reservation",
        "waiter",
    )

    def __init__(self, key: Hashable, reservation: Reservation | None = None) -> None:
        self.key = key
        self.above: Hashable | None = None
        self.is_aside = False
        self.reservation = reservation
        self.due_ms = 0 if reservation is None else reservation.due_ms
        self.missed_milli: dict[str, int] = {}
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


class _Shown(NamedTuple):
    """An image of the bucket, and the callers that waited when it came."""

    image: BucketImage
    sleepers: Sequence[Sleeper]


class WaitingLine:
    """Callers that wait for one bucket or shard: those with a reservation, and the local queue.

    ``watcher`` is the caller with a reservation that reads the bucket now and then, for all.

    ``given_back`` and ``see`` only note what has happened. ``move_up`` moves the dues by it, in
    steps, called by one of the callers, the ``mover``. Until then a due is later than it could be,
    never earlier.
    """

    def __init__(self, now_s: Callable[[], float] = monotonic, step: int = STEP) -> None:
        self._now_s = now_s
        self._step = step
        self.reserved: OrderedDict[Sleeper, None] = OrderedDict()  # in the order of joining
        self.queue: ArrivalQueue[Sleeper] = ArrivalQueue()
        self.watcher: Sleeper | None = None
        self.mover: Sleeper | None = None
        self.may_be_paused = False
        self._last: Sleeper | None = None  # of those that came so far, the last one by its place
        self._credits: list[Reservation] = []
        self._credits_milli: dict[str, int] = {}
        self._shown: _Shown | None = None
        self._steps: Iterator[None] | None = None
        self._took_s = self._rests_until_s = 0.0
        self._now_ms = 0  # at the current step

    def add(self, sleeper: Sleeper) -> None:
        """Add a reservation. Its image may show that tokens were given back before."""
        reservation, last = sleeper.reservation, self._last
        assert reservation is not None
        sleeper.missed_milli = dict(self._credits_milli)
        shows_more = last is not None and self._shows_more(last, reservation)
        self.reserved[sleeper] = None
        if last is None or _place(last) < reservation.place:
            self._last = sleeper
        if shows_more:
            self.see(reservation.image)

    def remove(self, sleeper: Sleeper) -> None:
        """Remove a caller that goes on, or gives up. Another one watches in its place."""
        self.reserved.pop(sleeper, None)
        if self.watcher is sleeper:
            self.watcher = None
            if self.reserved:
                next(reversed(self.reserved)).wake()
        if self.mover is sleeper:
            self.mover = None
            self._call_mover()

    def see(self, image: BucketImage) -> None:
        """Note an image of the bucket, which may show that tokens were given back.

        What this process has charged behind a caller does not count against it. What other
        processes have charged there does, since the image does not show their order: a due may
        stay later than it could be, and never moves too far forward. An image that is older than a
        reservation says nothing of it, nor does one with other limits.
        """
        self._shown = _Shown(image, tuple(self.reserved))
        self._call_mover()

    def given_back(self, withdrawn: Reservation) -> None:
        """Note a reservation whose tokens were credited: callers behind it are due earlier.

        It has been removed before the credit was sent: an image that shows the credit must not
        count its charge as one that is still behind others. What images have shown is not added up
        with this: they may show the same credit.
        """
        if not self.reserved:
            return
        self._credits.append(withdrawn)
        _add(self._credits_milli, withdrawn.amounts_milli)
        self._call_mover()

    def _call_mover(self) -> None:
        """Let a caller move the dues of all: the one that does, else the one that came last."""
        if self.mover is None and self.reserved:
            self.mover = next(reversed(self.reserved))
        if self.mover is not None:
            self.mover.wake()

    @property
    def has_news(self) -> bool:
        """Whether dues are to be moved."""
        return bool(self._credits) or self._shown is not None or self._steps is not None

    def _rest_s(self) -> float:
        """Return for how long the line still rests; negative if it does not."""
        return self._rests_until_s - self._now_s()

    def wait_s(self, sleeper: Sleeper) -> float | None:
        """Return how soon a caller has to move dues; None if it has not."""
        if sleeper is not self.mover:
            return None
        if not self.has_news:
            self.mover = None
            return None
        return 0.0 if self._steps is not None else max(0.0, self._rest_s())

    def move_up(self, now_ms: int) -> bool:
        """Move dues by what was noted, one step of it; return whether there is more to do now."""
        self._now_ms = now_ms
        if self._steps is None:
            if not self.has_news or self._rest_s() > 0:
                return False
            self._steps, self._took_s = self._moving(), 0.0
        began_s = self._now_s()
        is_over = next(self._steps, self) is self
        self._took_s += self._now_s() - began_s
        if is_over:
            self._steps, self._rests_until_s = None, self._now_s() + REST * self._took_s
        return not is_over

    def _moving(self) -> Iterator[None]:
        """Move the dues of all callers.

        What was noted is taken first: if a step is interrupted, dues stay later than they could be.
        """
        shown, self._shown = self._shown, None
        withdrawn, self._credits, self._credits_milli = self._credits, [], {}
        sleepers = sorted(self.reserved, key=_place)
        if self._last not in self.reserved and sleepers:
            self._last = sleepers[-1]
        yield  # to sort them was a step
        if withdrawn:
            yield from self._credit(sorted(withdrawn, key=lambda each: each.place), sleepers)
        if shown is not None:
            in_order = sorted(shown.sleepers, key=_place, reverse=True)
            yield from self._compare(shown.image, in_order)

    def _credit(self, withdrawn: list[Reservation], sleepers: list[Sleeper]) -> Iterator[None]:
        """Add to the balances of callers what was given back ahead of them."""
        ahead: dict[str, int] = {}
        given = iter(withdrawn)
        following = next(given, None)
        for at, sleeper in enumerate(sleepers, 1):
            reservation, missed = sleeper.reservation, sleeper.missed_milli
            assert reservation is not None
            while following is not None and following.place < reservation.place:
                _add(ahead, following.amounts_milli)
                following = next(given, None)
            if ahead:
                sleeper.reservation = reservation.with_balances(
                    {
                        key: state.balance_milli + max(0, ahead.get(key, 0) - missed.get(key, 0))
                        for key, state in reservation.limits.items()
                    }
                )
                self._move(sleeper, sleeper.reservation)
            sleeper.missed_milli = {}
            if at % self._step == 0:
                yield

    def _compare(self, image: BucketImage, sleepers: list[Sleeper]) -> Iterator[None]:
        """Move dues as far as an image allows. Callers come in the reverse order of service."""
        behind: dict[str, int] = {}
        for at, sleeper in enumerate(sleepers, 1):
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
                self._move(sleeper, reservation.with_balances(balances))
            for key in reservation.limits:
                behind[key] = behind.get(key, 0) + reservation.amounts_milli[key]
            if at % self._step == 0:
                yield

    def _move(self, sleeper: Sleeper, raised: Reservation) -> None:
        """Move the due of a caller, unless it has left since the first step."""
        if sleeper in self.reserved:
            sleeper.move_up(raised, self._now_ms)

    def _shows_more(self, last: Sleeper, newer: Reservation) -> bool:
        """Tell whether the caller before a new reservation would move up by its image.

        If not, no caller further ahead would either: what was given back before the last one has
        been seen with its own image, or noted since.
        """
        assert last.reservation is not None
        if newer.place < last.reservation.place:
            return False
        for key, state in last.reservation.limits.items():
            after = newer.image.limits.get(key)
            if after is not None:
                charged = newer.amounts_milli.get(key, 0)
                noted = self._credits_milli.get(key, 0) - last.missed_milli.get(key, 0)
                if after.balance_milli + charged > state.balance_milli + noted:
                    return True
        return False

    def is_empty(self) -> bool:
        return not self.reserved and not self.queue


def _place(sleeper: Sleeper) -> tuple[int, int]:
    assert sleeper.reservation is not None
    return sleeper.reservation.place


def _add(total_milli: dict[str, int], amounts_milli: Mapping[str, int]) -> None:
    for key, amount in amounts_milli.items():
        total_milli[key] = total_milli.get(key, 0) + amount


def line_key(grant: Grant) -> Hashable:
    """Return the key of the line of a shard; the local queue of a bucket has one without it."""
    charge, reservation = grant.charges[0], grant.reservation
    number = 0 if reservation is None else reservation.shard.number
    return charge.entity_id, charge.resource, number


class WaitingLines:
    """The lines of all buckets that callers of this process wait for. Shared by tasks and threads.

    What is done under the lock takes microseconds, a step of moving dues some milliseconds.
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

    # --- callers with a reservation

    def reserve(self, sleeper: Sleeper) -> None:
        """Add a caller with a reservation."""
        with self._lock:
            self._line(sleeper.key).add(sleeper)

    def watches(self, sleeper: Sleeper) -> bool:
        """Tell whether a caller watches the bucket; it does if no other one does."""
        with self._lock:
            line = self._line(sleeper.key)
            if line.watcher is None:
                line.watcher = sleeper
            return line.watcher is sleeper

    def given_back(self, grant: Grant) -> None:
        """Let the callers behind a charge that was credited move up."""
        with self._lock:
            line = self._lines.get(line_key(grant))
            if line is not None and grant.reservation is not None:
                line.given_back(grant.reservation)

    def see(self, sleeper: Sleeper, image: BucketImage) -> None:
        """Show an image of the bucket to its line."""
        with self._lock:
            self._line(sleeper.key).see(image)

    def moves_in_s(self, sleeper: Sleeper) -> float | None:
        """Return how soon a caller has to move the dues of its line; None if it has not."""
        with self._lock:
            return self._line(sleeper.key).wait_s(sleeper)

    def move_up(self, sleeper: Sleeper, now_ms: int) -> None:
        """Move dues of the line of a caller, one step."""
        with self._lock:
            self._line(sleeper.key).move_up(now_ms)

    # --- callers in a queue

    def arrive(self, sleeper: Sleeper) -> None:
        """Number a caller in the order of arrival."""
        with self._lock:
            sleeper.number = next(self._arrivals)

    def enter_queue(self, sleeper: Sleeper) -> None:
        """Add a caller to the local queue, unless it is in it.

        It asks after those before it, and so waits for the same pause as their head. The head of a
        queue stands in that of the parent's bucket, too, if it waits for the slots of both.
        """
        with self._lock:
            queue = self._line(sleeper.key).queue
            if sleeper not in queue:
                if not sleeper.number:
                    sleeper.number = next(self._arrivals)
                head = queue.first()
                if head is not None:
                    sleeper.paused_until_ms = head.paused_until_ms
                queue.add(sleeper)
            self._send_head_up(sleeper.key)

    def step_aside(self, sleeper: Sleeper, *, is_aside: bool) -> None:
        """Let siblings pass a caller in the queue of the parent's bucket, or no longer."""
        with self._lock:
            sleeper.is_aside = is_aside
            if sleeper.above is not None:
                if is_aside:
                    self._line(sleeper.above).queue.discard(sleeper)
                    self._wake_head(sleeper.above)
                else:
                    self._send_head_up(sleeper.key)

    def let_pass(self, sleeper: Sleeper, now_ms: int) -> None:
        """Let callers whose pause is over ask before one that cannot reserve yet, pause or not.

        Otherwise the order is that of arrival.
        """
        with self._lock:
            sleeper.paused_until_ms = 0
            line = self._line(sleeper.key)
            if line.may_be_paused:
                line.queue.prefer(lambda each: 0 < each.paused_until_ms <= now_ms)
            head = line.queue.first()
            if head is not None and head is not sleeper:
                head.wake()

    def pause(self, sleeper: Sleeper, until_ms: int) -> None:
        """Note the pause that a caller waits for."""
        with self._lock:
            sleeper.paused_until_ms = until_ms
            self._line(sleeper.key).may_be_paused = True

    def end_pause(self, sleeper: Sleeper, now_ms: int) -> None:
        """Let the callers of a queue ask in turn, after one has seen that a pause was lifted."""
        with self._lock:
            for each in self._line(sleeper.key).queue:
                each.paused_until_ms = min(each.paused_until_ms, now_ms)

    def has_queue(self, *keys: Hashable) -> bool:
        """Tell whether callers are in one of these queues."""
        return any(self.waiting(key) for key in keys)

    def resumes(self, key: Hashable, now_ms: int) -> bool:
        """Tell whether a pause is over, and callers that it has held back ask one by one."""
        with self._lock:
            head = self._head(key)
            return head is not None and 0 < head.paused_until_ms <= now_ms

    def waiting(self, key: Hashable) -> int:
        """Return how many callers are in a local queue."""
        line = self._lines.get(key)
        return 0 if line is None else len(line.queue)

    def is_head(self, sleeper: Sleeper) -> bool:
        """Tell whether no other caller is before this one in a queue that it stands in."""
        with self._lock:
            if not self._is_first(sleeper, sleeper.key):
                return False
            return sleeper.is_aside or self._is_first(sleeper, sleeper.above)

    def _is_first(self, sleeper: Sleeper, key: Hashable | None) -> bool:
        line = self._lines.get(key)
        return line is None or sleeper not in line.queue or line.queue.first() is sleeper

    def slots_returned(self, grant: Grant) -> None:
        """Wake the callers that look for slots of the buckets of a grant.

        One that had stepped aside comes back first: a sibling that came later must not take the
        parent's slot before it.
        """
        keys = [(charge.entity_id, charge.resource) for charge in grant.charges]
        with self._lock:
            for key in keys:
                head = self._head(key)
                if head is not None and head.is_aside:
                    head.is_aside = False
                    self._send_head_up(key)
            for key in keys:
                self._wake_head(key)

    # --- all callers

    def prepare(self, sleeper: Sleeper, waiter: Callable[[], W]) -> W:
        """Return the event that will wake a caller; to be made before its due is looked at."""
        with self._lock:
            sleeper.waiter = event = waiter()
            return event

    def leave(self, sleeper: Sleeper) -> None:
        """Remove a caller from its line and queues, if present, and wake those whose turn it is.

        May be called again after an interrupt: then it wakes them once more.
        """
        with self._lock:
            line = self._lines.get(sleeper.key)
            if line is not None:
                if sleeper.reservation is None:
                    line.queue.discard(sleeper)
                else:
                    line.remove(sleeper)
            above = None if sleeper.above is None else self._lines.get(sleeper.above)
            if above is not None:
                above.queue.discard(sleeper)
            self._send_head_up(sleeper.key)
            for key in (sleeper.key, sleeper.above):
                self._wake_head(key)
                if key in self._lines and self._lines[key].is_empty():
                    del self._lines[key]

    def _send_head_up(self, key: Hashable) -> None:
        """Let the head of a queue stand in that of the parent's bucket, in its order of arrival.

        The heads of all children stand there, so the first of them is the first of all callers.
        """
        head = self._head(key)
        if head is not None and head.above is not None and not head.is_aside:
            above = self._line(head.above).queue
            if head not in above:
                above.add(head)

    def _wake_head(self, key: Hashable | None) -> None:
        head = self._head(key)
        if head is not None:
            head.wake()

    def _head(self, key: Hashable | None) -> Sleeper | None:
        line = self._lines.get(key)
        return None if line is None else line.queue.first()

    def _line(self, key: Hashable) -> WaitingLine:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = WaitingLine()
        return line
