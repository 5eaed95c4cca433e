"""The ends of blocks that the store has not taken. They are repeated in the background.

What was certainly not made is written again until it is stored, and its holds are renewed
meanwhile. If they expire all the same, the store takes the whole cost as a debt. A write of unknown
outcome is looked up; it is written again only if it is certain by then that it was not made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from zae_limiter._async.ports import NO_TRACE, Unsettled
from zae_limiter.admission.request import Fate, Settlement
from zae_limiter.admission.slots import is_lost
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.runtime.alarm import AAlarm
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.runtime.parallel import agather
from zae_limiter.runtime.waiter import AWaiter

if TYPE_CHECKING:
    from zae_limiter._async.ask import AcquireCall
    from zae_limiter._async.holds import HeldQuotas, Holds
    from zae_limiter.clock.backoff import Backoff
    from zae_limiter.quiet_logging import QuietLogger

MAX_PENDING = 10_000  # bounds the memory in an outage; what comes on top is given up at once
AT_ONCE = 16  # parallel repetitions: acquires need connections and throughput, too
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0  # a store that is back has its ends soon after, and is hardly asked before
BREAKER_PAUSE_S = 1.0  # as long as between two probes
CLOSING_PAUSE_S = 0.05


class PendingEnd:
    """The part of one block's end that is not known to be stored.

    ``quotas`` are the holds of the block; those that the end certainly did not reach are renewed.
    ``lost`` are the settlements that were given up.
    """

    def __init__(
        self,
        call: AcquireCall,
        left: Sequence[Unsettled],
        quotas: Iterable[HeldQuotas] = (),
        on_stored: Callable[[], None] | None = None,
        error: BaseException | None = None,
    ) -> None:
        self.call = call
        self.left = list(left)
        self.lost: list[Settlement] = []
        self.error = error
        self.is_tried = False
        # What the settlements call each hold, at its place; a renewal changes the name.
        self._named = [(held, held.current()) for held in quotas]
        self._on_stored = on_stored
        self._on_over: list[Callable[[], None]] = []
        self._is_over = False
        self._is_sent = False

    @property
    def is_over(self) -> bool:
        """Whether everything is stored or given up, and all who wanted to know were told."""
        return self._is_over

    def when_over(self, call: Callable[[], None]) -> bool:
        """Make a call when the end is over; return False if it is over already."""
        self._on_over.append(call)
        if not self._is_over:
            return True
        try:  # one of the two threads takes it from the list
            self._on_over.remove(call)
        except ValueError:
            return True
        return False

    def hold_on(self) -> None:
        """Renew the holds of what was certainly not made.

        Other holds may have been ended. If they were, a renewal would move what others hold.
        """
        certain = [each.settlement for each in self.left if each.doubt is None]
        ids = {id(part.hold) for settlement in certain for part in settlement.quotas}
        for held, named in self._named:
            if held.renew_only(named, ids):
                self.call.charging.holds.go_on(held)

    async def try_again(self) -> None:
        """Look up what is in doubt, then write what was certainly not made."""
        if self._is_sent:  # the event loop of the last attempt was closed in the middle of it
            self.left = [each._replace(doubt=NO_TRACE) for each in self.left]
        for each in list(self.left):
            if each.doubt is not None:
                self._note_fate(each, await each.doubt.look_up())
        certain = [each for each in self.left if each.doubt is None]
        if certain:
            await self._write(certain)

    def give_up(self) -> None:
        """Count what is left as lost."""
        self.lost += [each.settlement for each in self.left]
        self.left = []

    def finish(self) -> None:
        """Report what was given up, and tell all who wait for the end; once only."""
        if self._is_over:
            return
        for held, named in self._named:
            held.renew_only(named, ())
        if self.lost:
            self.call.charging.count_lost_settlement()
            _log().error(
                "could not settle %s for %r on %r",
                [(each.entity_id, _amounts(each)) for each in self.lost],
                self.call.entity_id,
                self.call.resource,
                exc_info=self.error,
            )
        elif self._on_stored is not None:
            self._on_stored()
        self._is_over = True
        while True:
            try:
                tell = self._on_over.pop(0)
            except IndexError:  # none is left, or another thread has taken it
                return
            tell()

    def _note_fate(self, doubtful: Unsettled, fate: Fate) -> None:
        if fate is Fate.NOT_KNOWN_YET:
            return
        at = self.left.index(doubtful)
        if fate is Fate.NOT_MADE:
            self.left[at] = doubtful._replace(doubt=None)
            return
        del self.left[at]
        if fate is Fate.NEVER_KNOWN:
            self.lost.append(doubtful.settlement)

    async def _write(self, certain: list[Unsettled]) -> None:
        """Write settlements again, under the present names of their holds."""
        doubtful = [each for each in self.left if each.doubt is not None]
        holds, receipt = self.call.charging.holds, Receipt[Any]()
        settlements: tuple[Settlement, ...] = ()
        try:
            # A renewal under way ends first.
            present = [(held, await holds.end(held)) for held, _ in self._named]
            settlements = self._as_of_now([each.settlement for each in certain], present)
            if not self.left:
                return  # `close` has given it up meanwhile, and its holds with it
            self._named = present
            self.left = doubtful + [Unsettled(each) for each in settlements]
            self._is_sent = True
            await self.call.settle(settlements, receipt)
            self.left = doubtful + list((receipt.has_outcome and receipt.outcome) or ())
        except GeneratorExit:
            raise  # the event loop was closed: nobody learns what becomes of the write
        except BaseException as error:
            if self._is_sent:
                self.left = doubtful + left_after(receipt, settlements, error)
            self._is_sent = False
            self.hold_on()
            raise
        self._is_sent = False

    def _as_of_now(
        self, settlements: Iterable[Settlement], present: Iterable[tuple[HeldQuotas, Holds]]
    ) -> tuple[Settlement, ...]:
        """Return settlements with the present names of their holds, without expired slots.

        Slots return by themselves when they expire; then others may hold them. A hold that was not
        renewed keeps its name: nothing is renewed under the present one.
        """
        names = {
            id(old): new
            for (_, named), (_, now) in zip(self._named, present, strict=True)
            for olds, news in zip(named, now, strict=True)
            for old, new in zip(olds, news, strict=True)
            if new.units == old.units
        }
        found, now_ms = list[Settlement](), self.call.charging.clock()
        for settlement in settlements:
            quotas = [
                each._replace(hold=names.get(id(each.hold), each.hold))
                for each in settlement.quotas
            ]
            slots = [hold for hold in settlement.released if not is_lost(hold.expires_ms, now_ms)]
            if settlement.amounts_milli or settlement.admitted or quotas or slots:
                found.append(replace(settlement, quotas=tuple(quotas), released=tuple(slots)))
        return tuple(found)


def left_after(
    receipt: Receipt[Any], settlements: Iterable[Settlement], error: BaseException | None
) -> list[Unsettled]:
    """Return the settlements that are not known to be stored after a write."""
    if not receipt.has_outcome:
        return [Unsettled(each) for each in settlements]
    if receipt.outcome is None:  # the engine does not say more
        return [] if error is None else [Unsettled(each, NO_TRACE) for each in settlements]
    return list(receipt.outcome)


class PendingEnds:
    """Repeats the ends of all blocks on one open store.

    The oldest end is tried first and alone. Only when the store answers, the others follow. In the
    async tree the event loop that noted an end repeats it; if that loop has ended, the next loop
    that ends a block does, or ``close``.
    """

    def __init__(self) -> None:
        self._ends: dict[int, PendingEnd] = {}  # those that wait longest come first
        self._alarms: dict[object, AAlarm] = {}
        self._backoff: Backoff | None = None
        self._retry_at_s = 0.0
        self._is_closed = False
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def __len__(self) -> int:
        return len(self._ends)

    def after_fork(self) -> None:
        """Forget the ends of the parent, which repeats them itself."""
        self._ends, self._alarms = {}, {}

    def add(self, end: PendingEnd) -> None:
        """Repeat an end until it is over. It may be called again for the same end.

        If there are too many, or the store is closed, the end is given up.
        """
        with self._lock:
            if end.is_over:
                return
            is_refused = self._is_closed or len(self._ends) >= MAX_PENDING
            if id(end) in self._ends or not is_refused:
                self._ends[id(end)] = end
                is_refused = False
        if is_refused:
            end.give_up()
            end.finish()
            return
        _log().debug("the end of a block will be repeated", exc_info=end.error)
        with suppress(Exception):  # a clock of the user may raise anything; the next try renews
            end.hold_on()
        with suppress(RuntimeError):  # the interpreter ends, and no thread can be started
            self.arm()

    def arm(self) -> None:
        """See to it that this event loop repeats ends, if there are any."""
        if not self._ends or self._is_closed:
            return
        owner = AAlarm.owner()
        with self._lock:
            alarm = self._alarms.get(owner)
            if alarm is None:
                alive = {each: alarm for each, alarm in self._alarms.items() if not alarm.is_dead}
                alarm = alive[owner] = AAlarm(self._ring, "zael-ends")
                self._alarms = alive
            if self._backoff is None:
                self._postpone()
            alarm.set(max(0.0, self._retry_at_s - time.monotonic()))

    async def close(self, seconds: float) -> None:
        """Try all ends for that long, then give them up. An attempt under way is finished."""
        from zae_limiter.clock.backoff import Backoff

        with self._lock:
            self._is_closed = True
            for alarm in self._alarms.values():
                alarm.stop()
        until_s, pauses = time.monotonic() + seconds, Backoff(CLOSING_PAUSE_S, 1.0)
        while self._ends and (left_s := until_s - time.monotonic()) > 0:
            with suppress(Exception):  # the ends keep the error of their last attempt
                await self._try_all()
            if self._ends:
                with suppress(TimeoutError):
                    await AWaiter().wait(min(left_s, pauses.next_s()))
        for end in list(self._ends.values()):
            self._drop(end)
            end.give_up()
            end.finish()

    async def _ring(self) -> None:
        if self._is_closed:
            return
        if self._is_held_back():
            self._retry_at_s = time.monotonic() + BREAKER_PAUSE_S
            self.arm()
            return
        before = len(self._ends)
        try:
            await self._try_all()
        except Exception:  # noqa: BLE001 - whatever it is, the next ring tries again
            _log().debug("could not repeat the ends of blocks", exc_info=True)
        finally:
            if len(self._ends) < before:
                self._backoff = None
            self._postpone()
            self.arm()

    def _is_held_back(self) -> bool:
        """Tell whether the circuit breaker is open; it probes the store if that is due."""
        end = next(iter(self._ends.values()), None)
        return end is not None and not end.call.charging.breaker.lets_through()

    def _postpone(self) -> None:
        """Set the time of the next attempt."""
        from zae_limiter.clock.backoff import Backoff

        if self._backoff is None:
            self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._retry_at_s = time.monotonic() + self._backoff.next_s()

    async def _try_all(self) -> None:
        """Try every end once; only the oldest one if the store does not answer.

        The store is asked before, by a read: a write into an outage could be of unknown outcome.
        """
        waiting = list(self._ends.values())
        if not waiting:
            return
        await waiting[0].call.charging.breaker.ask()
        if not await self._try(waiting[0]):
            return
        parallel = waiting[0].call.charging.parallel
        for start in range(1, len(waiting), AT_ONCE):
            some = waiting[start : start + AT_ONCE]
            answers = await agather(parallel, *[partial(self._try, each) for each in some])
            if not any(answers):
                return

    async def _try(self, end: PendingEnd) -> bool:
        """Try an end; return False if the store has not answered."""
        with self._lock:
            if end.is_tried or id(end) not in self._ends:
                return True  # another thread or event loop is at it
            end.is_tried = True
        try:
            await end.try_again()
        except Exception as error:  # noqa: BLE001 - it is tried again
            end.error = error
            _log().debug("the end of a block was not stored", exc_info=True)
            return not isinstance(error, RateLimiterUnavailable)
        finally:
            self._drop(end)
            end.is_tried = False
            if not end.left:
                end.finish()
            elif not end.is_over:  # `close` may have given it up meanwhile
                self._put_back(end)
        return True

    def _drop(self, end: PendingEnd) -> None:
        with self._lock:
            self._ends.pop(id(end), None)

    def _put_back(self, end: PendingEnd) -> None:
        """Let an end wait again, behind all others."""
        with self._lock:
            self._ends[id(end)] = end


def _amounts(settlement: Settlement) -> dict[str, int]:
    """Return the debts and credits of a settlement by stored name, quotas included."""
    changes = {each.hold.key: each.change for each in settlement.quotas}
    return {**settlement.amounts_milli, **changes}


def _log() -> QuietLogger:
    # Imported here, so that `import zae_limiter` does not import logging.
    from zae_limiter.quiet_logging import quiet_logger

    return quiet_logger(__name__)
