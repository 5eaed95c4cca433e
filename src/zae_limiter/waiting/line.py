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

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from time import monotonic
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.reservation import Reservation
from zae_limiter.runtime.waiter import Wakeable
from zae_limiter.waiting.arrival_queue import ArrivalQueue

# The number of dues that one step moves. Moving a due takes 5 µs, and its caller's new sleep 15 µs.
STEP = 200
# After the dues of a line were moved, the line rests for this many times as long. So moving dues
# takes a small part of the CPU, even if many callers give back their tokens one by one.
REST = 24
# A caller that has not acted for this long after the moment at which it should have loses its
# place. Its event loop is closed, stopped or blocked, or the store takes very long to answer.
PATIENCE_S = 10.0


class Sleeper:
    """A caller that sleeps until its reservation is due, or until it is the head of its queue.

    A sleeper is made before it joins its line, so that a caller which is interrupted meanwhile can
    leave. ``key`` is the key of its line. ``number`` counts arrivals in the queue.
    ``paused_until_ms`` is the end of the pause that it waits for in the queue; 0 if there is none.

    If the caller also waits for slots of its parent, ``parent_key`` is the key of the parent's
    line. It ``is_aside`` while its own bucket rejects it, so that its siblings can pass it.

    ``acts_by_s`` is the moment of the monotonic clock by which the caller acts again. If it does
    not, it ``was_passed`` by the callers behind it. It takes its place again when it acts.

    ``asks_with_head`` says that the head of its queue was admitted to a window that has begun, so
    that the caller asks as well, in the same write as others.

    ``after_credit`` is the number of the last credit of this process that was sent before the
    sleeper joined. Such a credit must not move its due, since the image of its own reservation may
    include it.
    """

    __slots__ = (
        "acts_by_s",
        "after_credit",
        "asks_with_head",
        "due_ms",
        "is_aside",
        "key",
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
        self.after_credit = 0
        self.waiter: Wakeable | None = None
        self.paused_until_ms = self.number = 0
        self.was_passed = self.asks_with_head = False
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


class Withdrawn(NamedTuple):
    """A reservation whose tokens were given back, and the number of the credit."""

    credit: int
    reservation: Reservation


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
        self._credits: list[Withdrawn] = []
        self._credits_milli: dict[str, int] = {}
        self._before_last_milli: dict[str, int] = {}  # the part that was sent before it joined
        self._shown: _Shown | None = None
        self._steps: Iterator[None] | None = None
        self._took_s = self._rests_until_s = 0.0
        self._now_ms = 0  # the time of the current step

    def add(self, sleeper: Sleeper) -> None:
        """Add a caller with a reservation, whose image may show that tokens were given back."""
        reservation, last = sleeper.reservation, self._last
        assert reservation is not None
        shows_more = last is not None and self._shows_more(last, reservation)
        self.reserved[sleeper] = None
        if last is None or _place(last) < reservation.place:
            self._last, self._before_last_milli = sleeper, dict(self._credits_milli)
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

    def note_credit(self, withdrawn: Reservation, credit: int) -> None:
        """Note a reservation whose tokens were given back: callers behind it are due earlier.

        ``credit`` is the number of the credit, in the order of sending. The caller has left the
        line before the credit was sent, since an image that shows the credit must not count the
        charge as one that is still behind others. Notes of images and of credits are not added up,
        since an image may show the same credit.
        """
        if not self.reserved:
            return
        self._credits.append(Withdrawn(credit, withdrawn))
        _add(self._credits_milli, withdrawn.amounts_milli)
        if self._last is not None and credit <= self._last.after_credit:
            _add(self._before_last_milli, withdrawn.amounts_milli)
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
        withdrawn, self._credits = self._credits, []
        self._credits_milli, self._before_last_milli = {}, {}
        sleepers = sorted(self.reserved, key=_place)
        if self._last not in self.reserved and sleepers:
            self._last = sleepers[-1]
        yield  # sorting was one step
        if withdrawn:
            yield from self._credit(withdrawn, sleepers)
        if shown is not None:
            in_order = sorted(shown.sleepers, key=_place, reverse=True)
            yield from self._compare(shown.image, in_order)

    def _credit(self, withdrawn: list[Withdrawn], sleepers: list[Sleeper]) -> Iterator[None]:
        """Add the tokens that were given back ahead of a caller to the balances of the caller."""
        given = Given(withdrawn)
        ahead: dict[str, int] = {}
        in_order = iter(sorted([each.reservation for each in withdrawn], key=lambda one: one.place))
        following = next(in_order, None)
        for at, sleeper in enumerate(sleepers, 1):
            reservation, before = sleeper.reservation, given.until(sleeper.after_credit)
            assert reservation is not None
            while following is not None and following.place < reservation.place:
                _add(ahead, following.amounts_milli)
                following = next(in_order, None)
            if ahead:
                sleeper.reservation = reservation.with_balances(
                    {
                        key: state.balance_milli + max(0, ahead.get(key, 0) - before.get(key, 0))
                        for key, state in reservation.limits.items()
                    }
                )
                self._move(sleeper, sleeper.reservation)
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
                noted = self._credits_milli.get(key, 0) - self._before_last_milli.get(key, 0)
                if after.balance_milli + charged > state.balance_milli + noted:
                    return True
        return False

    def is_empty(self) -> bool:
        return not self.reserved and not self.queue


class Given:
    """The amounts of credits, added up in the order in which the credits were sent."""

    def __init__(self, withdrawn: list[Withdrawn]) -> None:
        in_order = sorted(withdrawn, key=lambda each: each.credit)
        self._numbers = [each.credit for each in in_order]
        self._sums: list[dict[str, int]] = [{}]
        for each in in_order:
            self._sums.append(dict(self._sums[-1]))
            _add(self._sums[-1], each.reservation.amounts_milli)

    def until(self, credit: int) -> Mapping[str, int]:
        """Return the amounts of the credits up to this one."""
        return self._sums[bisect_right(self._numbers, credit)]


def _place(sleeper: Sleeper) -> tuple[int, int]:
    assert sleeper.reservation is not None
    return sleeper.reservation.place


def _add(total_milli: dict[str, int], amounts_milli: Mapping[str, int]) -> None:
    for key, amount in amounts_milli.items():
        total_milli[key] = total_milli.get(key, 0) + amount
