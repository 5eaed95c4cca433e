"""The lines of all buckets that callers of this process wait for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count
from typing import TypeVar
from weakref import WeakValueDictionary

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import Grant
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.runtime.waiter import Wakeable
from zae_limiter.waiting.line import Sleeper, WaitingLine

W = TypeVar("W", bound=Wakeable)

# The interval at which a caller in a queue looks whether the callers before it still act. All
# callers of a long queue together look 200 times per second at most.
LOOK_S, LOOK_EACH_S = 5.0, 0.005
TOGETHER = 500  # callers of a queue that ask at once when their window has begun


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
        self._sent_credits = 0
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lines = {}  # the parent's callers do not wait in the child

    def __len__(self) -> int:
        return len(self._lines)

    # --- callers with a reservation

    def reserve(self, sleeper: Sleeper) -> None:
        """Add a caller with a reservation."""
        with self._lock:
            sleeper.after_credit = self._sent_credits
            self._line(sleeper.key).add(sleeper)

    def watches(self, sleeper: Sleeper) -> bool:
        """Tell whether a caller is the watcher of its bucket. It becomes so if there is none."""
        with self._lock:
            line = self._line(sleeper.key)
            if line.watcher is None:
                line.watcher = sleeper
            return line.watcher is sleeper

    def number_credit(self) -> int:
        """Return the number of a credit that is about to be sent."""
        with self._lock:
            self._sent_credits += 1
            return self._sent_credits

    def note_credit(self, grant: Grant, credit: int) -> None:
        """Note that the tokens of a charge were given back, so that callers behind it move up."""
        with self._lock:
            line = self._lines.get(line_key(grant))
            if line is not None and grant.reservation is not None:
                line.note_credit(grant.reservation, credit)

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

    def let_all_ask(self, key: Hashable) -> None:
        """Wake the callers of a queue, so that they ask together: their window has begun.

        At most ``TOGETHER`` callers are woken; the next head of the queue wakes more.
        """
        with self._lock:
            line = self._lines.get(key)
            queued = () if line is None else sorted(line.queue, key=lambda each: each.number)
            for each in queued[:TOGETHER]:
                each.asks_with_head = True
                each.wake()

    def has_queue(self, *keys: Hashable) -> bool:
        """Tell whether a caller is in one of these queues."""
        return any(self.waiting(key) for key in keys)

    def resumes(self, key: Hashable, now_ms: int) -> bool:
        """Tell whether the pause of a queue is over, while its callers still ask one by one."""
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

        After an interrupt this can be called again; then the next callers are woken once more.
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
