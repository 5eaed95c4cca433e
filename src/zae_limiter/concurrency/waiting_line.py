"""The callers of this process that wait for tokens or slots of a bucket.

A caller with a reservation sleeps until its reservation is due. A due only ever becomes earlier:
after a caller ahead has given back its tokens, or after a later image of the bucket has shown that
tokens were given back. A caller that cannot reserve yet waits in the local queue of its bucket;
only the head of the queue asks the store.

Thousands of callers may wait for one bucket, and all may be cancelled at one moment. So a caller
joins and leaves in constant time, and one of the waiting callers moves the dues of a line, for many
credits together and in short steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import count
from time import monotonic
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import Grant
from zae_limiter.admission.reservation import Reservation
from zae_limiter.concurrency.arrival_queue import ArrivalQueue
from zae_limiter.concurrency.locks import SignalSafeLock, renew_after_fork
from zae_limiter.concurrency.waiter import Wakeable

W = TypeVar("W", bound=Wakeable)

# The number of dues that one step moves. Moving a due takes 5 µs, and its caller's new sleep 15 µs.
STEP = 200
# After the dues of a line were moved, the line rests for this many times as long. So moving dues
# takes a small part of the CPU, even if many callers give back their tokens one by one.
REST = 24
# A caller that has not acted for this long after the moment at which it should have loses its
# place. Its event loop is closed, stopped or blocked, or the store takes very long to answer.
PATIENCE_S = 10.0
# The interval at which a caller in a queue looks whether the callers before it still act. All
# callers of a long queue together look 200 times per second at most.
LOOK_S, LOOK_EACH_S = 5.0, 0.005


class Sleeper:
    """A caller that sleeps until its reservation is due, or until it is the head of its queue.

    A sleeper is made before it joins its line, so that a caller which is interrupted meanwhile can
    leave. ``key`` is the key of its line. ``number`` counts arrivals in the queue.
    ``paused_until_ms`` is the end of the pause that it waits for in the queue; 0 if there is none.

    If the caller also waits for slots of its parent, ``parent_key`` is the key of the parent's
    line. It ``is_aside`` while its own bucket rejects it, so that its siblings can pass it.

    ``acts_by_s`` is the moment of the monotonic clock by which the caller acts again. If it does
    not, it ``was_passed`` by the callers behind it. It takes its place again when it acts.

    ``missed_milli`` are the credits that the line had noted before the sleeper joined. They must
    not move its due, since the image of its own reservation includes them.
    """

    __slots__ = (
        "acts_by_s",
        "due_ms",
        "is_aside",
        "key",
        "missed_milli",
        "number",
        "parent_key",
        "paused_until_ms",
        "reservation",
        "waiter",
        "was_passed",
    )

    def __init__(self, key: Hashable, reservation: Reservation | None = None) -> None:
        self.key = key
        self.parent_key: Hashable | None = None
        self.is_aside = False
        self.reservation = reservation
        self.due_ms = 0 if reservation is None else reservation.due_ms
        self.missed_milli: dict[str, int] = {}
        self.waiter: Wakeable | None = None
        self.paused_until_ms = self.number = 0
        self.was_passed = False
        self.rest(0)

    @property
    def can_act(self) -> bool:
        """Tell whether the caller acts when its turn has come, as far as is known."""
        return monotonic() < self.acts_by_s

    def rest(self, seconds: float) -> None:
        """Note that the caller acts again after so many seconds, or when it is woken."""
        self.acts_by_s = monotonic() + seconds + PATIENCE_S

    def wake(self) -> None:
        if self.waiter is None:
            return
        self.acts_by_s = min(self.acts_by_s, monotonic() + PATIENCE_S)
        if not self.waiter.wake():
            self.acts_by_s = 0.0  # its event loop is closed

    def move_up(self, raised: Reservation, now_ms: int) -> None:
        """Make the caller due earlier, at the due of a reservation with higher balances.

        If that moment has passed, the caller is due now.
        """
        due_ms = max(now_ms, raised.due_ms)
        if due_ms < self.due_ms:
            self.due_ms = due_ms
            self.wake()


class _Shown(NamedTuple):
    """An image of the bucket, and the callers that waited when the image was noted."""

    image: BucketImage
    sleepers: Sequence[Sleeper]


class WaitingLine:
    """Callers that wait for one bucket or shard: those with a reservation, and the local queue.

    ``watcher`` is a caller with a reservation that reads the bucket now and then, for all others.

    ``note_credit`` and ``note_image`` only take notes. One of the callers, the ``mover``, calls
    ``move_up``, which moves the dues in steps. Until then a due may be later than necessary, but
    never too early.
    """

    def __init__(self, now_s: Callable[[], float] = monotonic, step: int = STEP) -> None:
        self._now_s = now_s
        self._step = step
        self.reserved: OrderedDict[Sleeper, None] = OrderedDict()  # in the order of joining
        self.queue: ArrivalQueue[Sleeper] = ArrivalQueue()
        self.watcher: Sleeper | None = None
        self.mover: Sleeper | None = None
        self.may_be_paused = False
        self._last: Sleeper | None = None  # the one with the last place of all that have joined
        self._credits: list[Reservation] = []
        self._credits_milli: dict[str, int] = {}
        self._shown: _Shown | None = None
        self._steps: Iterator[None] | None = None
        self._took_s = self._rests_until_s = 0.0
        self._now_ms = 0  # the time of the current step

    def add(self, sleeper: Sleeper) -> None:
        """Add a caller with a reservation, whose image may show that tokens were given back."""
        reservation, last = sleeper.reservation, self._last
        assert reservation is not None
        sleeper.missed_milli = dict(self._credits_milli)
        shows_more = last is not None and self._shows_more(last, reservation)
        self.reserved[sleeper] = None
        if last is None or _place(last) < reservation.place:
            self._last = sleeper
        if shows_more:
            self.note_image(reservation.image)

    def remove(self, sleeper: Sleeper) -> None:
        """Remove a caller that goes on or gives up. If it was the watcher, another one is woken."""
        self.reserved.pop(sleeper, None)
        if self.watcher is sleeper:
            self.watcher = None
            if self.reserved:
                next(reversed(self.reserved)).wake()
        if self.mover is sleeper:
            self.mover = None
            self._call_mover()

    def note_image(self, image: BucketImage) -> None:
        """Note an image of the bucket, which may show that tokens were given back.

        Charges that this process has made behind a caller do not delay the caller. Charges of other
        processes do, since the image does not show their order. So a due may stay later than
        necessary, but never becomes too early. An image that is older than a reservation, or that
        has other limits, does not move its due.
        """
        self._shown = _Shown(image, tuple(self.reserved))
        self._call_mover()

    def note_credit(self, withdrawn: Reservation) -> None:
        """Note a reservation whose tokens were given back: callers behind it are due earlier.

        The caller has left the line before the credit was sent, since an image that shows the
        credit must not count the charge as one that is still behind others. Notes of images and of
        credits are not added up, since an image may show the same credit.
        """
        if not self.reserved:
            return
        self._credits.append(withdrawn)
        _add(self._credits_milli, withdrawn.amounts_milli)
        self._call_mover()

    def _call_mover(self) -> None:
        """Wake the caller that moves the dues of all. If there is none, the last one does it."""
        if self.mover is None and self.reserved:
            self.mover = next(reversed(self.reserved))
        if self.mover is not None:
            self.mover.wake()

    @property
    def has_news(self) -> bool:
        """Tell whether there are notes that may move dues."""
        return bool(self._credits) or self._shown is not None or self._steps is not None

    def _rest_s(self) -> float:
        """Return the seconds for which the line still rests; negative if the rest is over."""
        return self._rests_until_s - self._now_s()

    def wait_s(self, sleeper: Sleeper) -> float | None:
        """Return the seconds after which a caller must move dues; None if it need not."""
        if sleeper is not self.mover:
            return None
        if not self.has_news:
            self.mover = None
            return None
        return 0.0 if self._steps is not None else max(0.0, self._rest_s())

    def move_up(self, now_ms: int) -> bool:
        """Move dues by the notes, in one step; return whether there are more steps."""
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

        All notes are taken at the beginning. So if a step is interrupted, some dues stay later than
        necessary.
        """
        shown, self._shown = self._shown, None
        withdrawn, self._credits, self._credits_milli = self._credits, [], {}
        sleepers = sorted(self.reserved, key=_place)
        if self._last not in self.reserved and sleepers:
            self._last = sleepers[-1]
        yield  # sorting was one step
        if withdrawn:
            yield from self._credit(sorted(withdrawn, key=lambda each: each.place), sleepers)
        if shown is not None:
            in_order = sorted(shown.sleepers, key=_place, reverse=True)
            yield from self._compare(shown.image, in_order)

    def _credit(self, withdrawn: list[Reservation], sleepers: list[Sleeper]) -> Iterator[None]:
        """Add the tokens that were given back ahead of a caller to the balances of the caller."""
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
        """Move dues as far as an image allows. ``sleepers`` are in reverse order of service."""
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
        """Tell whether the image of a new reservation moves the due of the caller before it.

        Otherwise no caller further ahead would move up either: earlier credits are in the image of
        the last caller, or were noted since.
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
    """Return the key of the line of a shard. The key of a local queue has no shard number."""
    charge, reservation = grant.charges[0], grant.reservation
    number = 0 if reservation is None else reservation.shard.number
    return charge.entity_id, charge.resource, number


class WaitingLines:
    """The lines of all buckets that callers of this process wait for, shared by tasks and threads.

    The lock is held for microseconds, and for some milliseconds in a step that moves dues.
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
        """Tell whether a caller is the watcher of its bucket. It becomes so if there is none."""
        with self._lock:
            line = self._line(sleeper.key)
            if line.watcher is None:
                line.watcher = sleeper
            return line.watcher is sleeper

    def note_credit(self, grant: Grant) -> None:
        """Note that the tokens of a charge were given back, so that callers behind it move up."""
        with self._lock:
            line = self._lines.get(line_key(grant))
            if line is not None and grant.reservation is not None:
                line.note_credit(grant.reservation)

    def note_image(self, sleeper: Sleeper, image: BucketImage) -> None:
        """Note an image of the bucket in the line of a caller."""
        with self._lock:
            self._line(sleeper.key).note_image(image)

    def moves_in_s(self, sleeper: Sleeper) -> float | None:
        """Return the seconds after which a caller must move the dues of its line; None if never."""
        with self._lock:
            return self._line(sleeper.key).wait_s(sleeper)

    def move_up(self, sleeper: Sleeper, now_ms: int) -> None:
        """Move dues in the line of a caller, in one step."""
        with self._lock:
            self._line(sleeper.key).move_up(now_ms)

    # --- callers in a queue

    def arrive(self, sleeper: Sleeper) -> None:
        """Number a caller in the order of arrival."""
        with self._lock:
            sleeper.number = next(self._arrivals)

    def enter_queue(self, sleeper: Sleeper) -> None:
        """Add a caller to the local queue of its bucket, unless it is in the queue.

        The caller asks after those before it, so it waits for the same pause as the head. If the
        callers wait for slots of the parent as well, the head also joins the parent's queue.
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
                sleeper.was_passed = False
            self._add_head_to_parents_queue(sleeper.key)

    def step_aside(self, sleeper: Sleeper, *, is_aside: bool) -> None:
        """Remove a caller that ``is_aside`` from the parent's queue, or let it join again."""
        with self._lock:
            sleeper.is_aside = is_aside
            if sleeper.parent_key is not None:
                if is_aside:
                    self._line(sleeper.parent_key).queue.discard(sleeper)
                    self._wake_head(sleeper.parent_key)
                else:
                    self._add_head_to_parents_queue(sleeper.key)

    def let_pass(self, sleeper: Sleeper, now_ms: int) -> None:
        """Let callers whose pause is over ask before a caller that still cannot reserve.

        All other callers stay in the order of arrival.
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
        """End the pause of all callers of a queue, after one has seen that it was lifted."""
        with self._lock:
            for each in self._line(sleeper.key).queue:
                each.paused_until_ms = min(each.paused_until_ms, now_ms)

    def has_queue(self, *keys: Hashable) -> bool:
        """Tell whether a caller is in one of these queues."""
        return any(self.waiting(key) for key in keys)

    def resumes(self, key: Hashable, now_ms: int) -> bool:
        """Tell whether a pause is over whose callers still ask one by one."""
        with self._lock:
            head = self._head(key)
            return head is not None and 0 < head.paused_until_ms <= now_ms

    def waiting(self, key: Hashable) -> int:
        """Return the number of callers in a local queue."""
        line = self._lines.get(key)
        return 0 if line is None else len(line.queue)

    def is_head(self, sleeper: Sleeper) -> bool:
        """Tell whether a caller is the first in each queue that it has joined."""
        with self._lock:
            sleeper.rest(0)
            if sleeper.was_passed:
                sleeper.was_passed = False
                self._line(sleeper.key).queue.add(sleeper)
                self._add_head_to_parents_queue(sleeper.key)
            if not self._is_first(sleeper, sleeper.key):
                return False
            return sleeper.is_aside or self._is_first(sleeper, sleeper.parent_key)

    def _is_first(self, sleeper: Sleeper, key: Hashable | None) -> bool:
        line = self._lines.get(key)
        return line is None or sleeper not in line.queue or self._head(key) is sleeper

    def look_s(self, sleeper: Sleeper) -> float:
        """Return the seconds after which a caller looks whether those before it still act."""
        return max(LOOK_S, LOOK_EACH_S * self.waiting(sleeper.key))

    def slots_returned(self, grant: Grant) -> None:
        """Wake the heads of the queues for slots of the buckets of a grant.

        A head that had stepped aside joins the parent's queue again before anyone is woken: a
        sibling that came later must not take the parent's slot.
        """
        keys = [(charge.entity_id, charge.resource) for charge in grant.charges]
        with self._lock:
            for key in keys:
                head = self._head(key)
                if head is not None and head.is_aside:
                    head.is_aside = False
                    self._add_head_to_parents_queue(key)
            for key in keys:
                self._wake_head(key)

    # --- all callers

    def prepare(self, sleeper: Sleeper, waiter: Callable[[], W]) -> W:
        """Return the event that will wake a caller. Call this before the due is read."""
        with self._lock:
            sleeper.waiter = event = waiter()
            sleeper.rest(0)
            return event

    def leave(self, sleeper: Sleeper) -> None:
        """Remove a caller from its line and queues, if present, and wake the next callers.

        It may be called again after an interrupt, and then wakes them once more.
        """
        with self._lock:
            line = self._lines.get(sleeper.key)
            if line is not None:
                if sleeper.reservation is None:
                    line.queue.discard(sleeper)
                else:
                    line.remove(sleeper)
            parent_line = self._lines.get(sleeper.parent_key)
            if parent_line is not None:
                parent_line.queue.discard(sleeper)
            self._add_head_to_parents_queue(sleeper.key)
            for key in (sleeper.key, sleeper.parent_key):
                self._wake_head(key)
                if key in self._lines and self._lines[key].is_empty():
                    del self._lines[key]

    def _add_head_to_parents_queue(self, key: Hashable) -> None:
        """Add the head of a queue to the parent's queue, at the place of its arrival.

        The heads of all children are there, so the first of them is the first of all callers.
        """
        head = self._head(key)
        if head is not None and head.parent_key is not None and not head.is_aside:
            parents_queue = self._line(head.parent_key).queue
            if head not in parents_queue:
                parents_queue.add(head)

    def _wake_head(self, key: Hashable | None) -> None:
        while (head := self._head(key)) is not None:
            head.wake()
            if head.can_act:
                return

    def _head(self, key: Hashable | None) -> Sleeper | None:
        """Return the first caller of a queue, after those that do not act have lost their places.

        If there are such callers, the first one behind them is woken.
        """
        line, has_passed = self._lines.get(key), False
        while line is not None and (head := line.queue.first()) is not None:
            if has_passed:
                head.wake()
            if head.can_act:
                return head
            self._pass(head)
            has_passed = True
        return None

    def _pass(self, sleeper: Sleeper) -> None:
        """Take a caller that does not act from its queues. The next of its siblings moves up."""
        sleeper.was_passed = True
        queue = self._line(sleeper.key).queue
        queue.discard(sleeper)
        if sleeper.parent_key is not None:
            parents_queue = self._line(sleeper.parent_key).queue
            parents_queue.discard(sleeper)
            following = queue.first()
            if following is not None and not following.is_aside and following not in parents_queue:
                parents_queue.add(following)

    def _line(self, key: Hashable) -> WaitingLine:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = WaitingLine()
        return line


_shared_guard = SignalSafeLock()
_shared: WeakValueDictionary[Hashable, WaitingLines] = WeakValueDictionary()


def shared_lines(store: Hashable) -> WaitingLines:
    """Return the lines that all repositories of this process share for one namespace of a store.

    They may belong to different trees, event loops and threads, and have different clocks. So only
    callers for slots share lines: their order is the order of arrival, and no clock is compared.
    """
    with _shared_guard:
        lines = _shared.get(store)
        if lines is None:
            lines = _shared[store] = WaitingLines()
        return lines
