"""Acquires that wait for tokens: reserve, sleep until the reservation is due, go on.

The order of the writes is the order of service, so nothing is asked or written when a caller goes
on. A caller that cannot reserve yet waits in the local queue of its bucket; only its head asks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from zae_limiter._async.acquire import AcquireCall, logged
from zae_limiter._async.repository.charging import ChargeService
from zae_limiter._async.repository.config_reads import Fresh
from zae_limiter._async.slot_waiting import SlotWaiting
from zae_limiter.admission.charge import statuses, under_limits
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import (
    Charge,
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.reservation import (
    HORIZON_MS,
    Reservation,
    Waking,
    bound_ms,
    next_try_ms,
    on_waking,
)
from zae_limiter.admission.shards.combined import CombinedImage
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.clock import Deadline
from zae_limiter.clock.wait_time import Steered, WaitTime
from zae_limiter.concurrency.calls import awithin
from zae_limiter.concurrency.locks import SignalSafeLock
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.concurrency.waiter import AWaiter
from zae_limiter.concurrency.waiting_line import Sleeper, WaitingLines, line_key
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ZAELimiterError
from zae_limiter.models.status import LimitStatus

WATCH_S = 1.0  # a caller that is due later than that looks whether tokens were given back
WATCHED_SHARE = 0.25  # of the wait: the read comes early enough to matter, and seldom
LONGEST_LOOK_S = 0.5  # a read that takes longer is given up: the caller must not miss its due
# Processes whose callers all wait for the horizon to come near do not ask at the same moment.
PAUSE_S = (4.0, 8.0)
QUICKER_MS = 50  # between two attempts at an amount that several shards hold only together


class Taken:
    """What was charged for one bucket, unless it was given back or has lapsed since."""

    __slots__ = ("receipt", "settled")

    def __init__(self) -> None:
        self.receipt: Receipt[ChargeOutcome] = Receipt()
        self.settled: Receipt[None] = Receipt()

    def grant(self) -> Grant | None:
        """Return the grant that is still in force."""
        outcome = self.receipt.outcome
        return outcome if type(outcome) is Grant and not self.settled.is_committed else None


class WaitingCall(AcquireCall):
    """What an acquire with a timeout asks for; more tokens within its lease are not waited for."""

    __slots__ = ("timeout", "waited_s")

    def __init__(self, call: AcquireCall, timeout: float) -> None:
        for name in AcquireCall.__slots__:
            setattr(self, name, getattr(call, name))
        self.timeout = timeout
        self.waited_s = 0.0

    async def charge(
        self,
        amounts: Mapping[str, int],
        receipt: Receipt[ChargeOutcome],
        *,
        is_acquire: bool = True,
    ) -> Grant:
        """Charge all buckets or none, each as soon as it is due; raise RateLimitExceeded."""
        if not is_acquire:
            return await super().charge(amounts, receipt, is_acquire=False)
        waiting = WaitingCharge(self, amounts)
        try:
            grant = await waiting.charge(self.timeout)
            receipt.outcome = grant
            return grant
        except BaseException:
            if not receipt.is_committed:
                await waiting.give_back()
            raise


class WaitingCharge(SlotWaiting):
    """One charge that waits: what it has taken so far, of the entity's bucket and the parent's."""

    _call: WaitingCall

    def __init__(self, call: WaitingCall, amounts: Mapping[str, int]) -> None:
        self._call = call
        self._amounts = amounts
        self._taken: list[Taken] = []
        self._sleepers: list[Sleeper] = []

    async def charge(self, timeout: float) -> Grant:
        """Charge all buckets, one after the other, each when it is due; or raise.

        The parent's bucket is not reserved while the child waits: all that its children had
        reserved before could be used at one moment.
        """
        scope = await self._call.scope()
        self._charging = self._call.charging
        self._lines = lines_of(self._charging)
        self._time = WaitTime(timeout, self._charging.clock)
        entity_ids = [entity_id for entity_id, _ in scope.buckets]
        if scope.has_slots:
            return await self._wait_for_slots(Taken, entity_ids[0])
        if len(entity_ids) > 1:
            grant = await self._charge_at_once()
            if grant is not None:
                return grant
        grants = [await self._wait_for(*each) for each in enumerate(entity_ids)]
        return Grant(
            tuple([charge for grant in grants for charge in grant.charges]),
            [image for grant in grants for image in _images_at_due(grant)],
            grants[-1].reservation,
        )

    async def give_back(self) -> None:
        """Refund what was taken; callers behind it move up. For one that was stopped, or failed."""
        for sleeper in self._sleepers:  # before the credit is sent, see WaitingLine
            self._lines.leave(sleeper)
        settlements: list[Settlement] = []
        settled: Receipt[None] = Receipt()
        returned = []
        for taken in self._taken:
            grant = taken.grant()
            if grant is None:
                continue
            returned.append(grant)
            settlements += self._settlements(grant)
            taken.settled = settled
        if not settlements:
            return
        await self._call.settle_quietly(tuple(settlements), settled)
        if settled.is_committed:
            now_ms = self._time.clock()
            for grant in returned:
                self._lines.given_back(grant, now_ms)

    # --- asking

    async def _charge_at_once(self) -> Grant | None:
        """Charge the entity and its parent together, if both hold the amounts; else None.

        Raises RateLimitExceeded if one of them does not even by the deadline.
        """
        outcome = await self._ask(None, Taken())
        if isinstance(outcome, Grant):
            return outcome
        now_ms = self._time.clock()
        until_ms = self._time.until_ms(now_ms)
        if next_try_ms(outcome.statuses, now_ms, until_ms, until_ms) is None:
            raise self._rejected(outcome.statuses)
        return None

    async def _ask(self, number: int | None, taken: Taken) -> Grant | Rejection:
        """Reserve in one bucket, or charge all of them at once (None)."""
        self._taken.append(taken)
        charging = self._charging
        breaker, timeout_s = charging.breaker, charging.request_timeout
        if breaker.is_open:
            breaker.check()
        deadline = None if timeout_s is None else Deadline(timeout_s)
        try:
            outcome = await self._charge(number, taken, deadline, None)
            if isinstance(outcome, StaleLimits):
                fresh = Fresh(outcome.version, self._stamp_ms)
                outcome = await self._charge(number, taken, deadline, fresh)
        except RateLimiterUnavailable as error:
            breaker.failed(error)
            raise
        breaker.answered_s = monotonic()
        assert not isinstance(outcome, StaleLimits), "the limits were just read"
        return outcome

    async def _charge(
        self, number: int | None, taken: Taken, deadline: Deadline | None, fresh: Fresh | None
    ) -> ChargeOutcome:
        charging, clock = self._charging, self._charging.clock
        scope, self._stamp_ms = await charging.scope(self._call, clock(), deadline, fresh)
        charges, until_ms = scope.charges(self._amounts), None
        if number is not None:
            charges = charges[number : number + 1]
            until_ms = self._time.until_ms(self._stamp_ms)
            if not charges:  # the entity has no parent any more
                return Grant(())
        request = ChargeRequest(
            charges,
            clock,
            self._stamp_ms,
            fresh is not None,
            True,
            self._call.speculative,
            deadline,
            until_ms,
        )
        return await charging.buckets.charge(charging.namespace_id, request, taken.receipt)

    async def _seen(self, number: int) -> Rejection:
        """Compare one bucket with the charge, without asking for it."""
        charging, clock = self._charging, self._charging.clock
        scope, now_ms = await charging.scope(self._call, clock())
        images, charges = await charging.images(scope), scope.charges(self._amounts)
        if number >= len(charges):
            return Rejection(())
        charge = charges[number]
        image = under_limits(images[number], charge.in_force, now_ms)
        return Rejection(tuple(statuses(charge, image, now_ms)))

    # --- waiting

    async def _wait_for(self, number: int, entity_id: str) -> Grant:
        """Return when the tokens of one bucket may be used; raise if they will not be in time."""
        key, lines = (entity_id, self._call.resource), self._lines
        queued = self._sleeper(key)
        try:
            if self._time.left_s() * 1000 > HORIZON_MS and lines.has_queue(key):
                lines.enter_queue(queued)
                self._next_try_ms(await self._seen(number))
                await self._sleep_in_queue(queued, None)
            while True:
                taken = Taken()
                outcome = await self._ask(number, taken)
                if isinstance(outcome, Rejection):
                    again_ms = self._next_try_ms(outcome)
                    lines.enter_queue(queued)
                    await self._sleep_in_queue(queued, again_ms)
                    continue
                lines.leave(queued)
                if await self._is_usable(taken, outcome):
                    return outcome
        finally:
            lines.leave(queued)

    def _next_try_ms(self, rejection: Rejection) -> int:
        """Return when to ask again; raise if the tokens will not be there by the deadline."""
        now_ms = self._time.clock()
        deadline_ms = self._time.until_ms(now_ms)
        horizon_ms = bound_ms(deadline_ms, now_ms)
        again_ms = next_try_ms(rejection.statuses, now_ms, horizon_ms, deadline_ms)
        if again_ms is None or self._time.left_s() <= 0:
            raise self._rejected(rejection.statuses)
        fits_ms = now_ms + round(RateLimitExceeded(rejection.statuses).retry_after_seconds * 1000)
        if again_ms <= now_ms:  # it seems to fit, and was rejected: other clients were quicker
            return now_ms + QUICKER_MS
        if fits_ms > horizon_ms:  # callers of other processes wait for the horizon, too
            pause_ms = int(random.uniform(*PAUSE_S) * 1000)
            again_ms = max(again_ms, min(now_ms + pause_ms, fits_ms))
        return again_ms

    async def _sleep_in_queue(self, queued: Sleeper, again_ms: int | None) -> None:
        """Return at the head of the queue when it is time to ask, or at the deadline."""
        while True:
            waiter = self._lines.prepare(queued, AWaiter)
            seconds = self._time.left_s()
            if self._lines.is_head(queued):
                if again_ms is None:
                    return
                seconds = min(seconds, self._time.seconds_to(again_ms))
            if seconds <= 0:
                return
            await self._sleep(waiter, seconds)

    async def _is_usable(self, taken: Taken, grant: Grant) -> bool:
        """Sleep until a reservation is due; False if it has lapsed and has to be made again."""
        reservation = grant.reservation
        if reservation is None or reservation.due_ms <= self._stamp_ms:
            return True  # the tokens are there
        charge, time = grant.charges[0], self._time
        sleeper = self._sleeper(line_key(grant), reservation)
        self._lines.reserve(sleeper, time.synchronize())
        await self._sleep_until_due(sleeper, charge)
        self._lines.leave(sleeper)
        waking = Waking.ENTER
        if not time.is_injected:
            after_due_s, after_deadline_s = -time.seconds_to(sleeper.due_ms), -time.left_s()
            waking = on_waking(1000 * after_due_s, 1000 * after_deadline_s)
        elif time.seconds_to(sleeper.due_ms) > 0:
            waking = Waking.LATE
        if waking is Waking.ENTER:
            return True
        if waking is Waking.LAPSED:
            await self._forfeit(taken, grant)
            if time.left_s() > 0:
                return False
        raise self._rejected(statuses(charge, reservation.image_without_it(), time.clock()))

    def _sleeper(self, key: Hashable, reservation: Reservation | None = None) -> Sleeper:
        sleeper = Sleeper(key, reservation)
        self._sleepers.append(sleeper)  # before it joins a line: an interrupt may come
        return sleeper

    async def _sleep_until_due(self, sleeper: Sleeper, charge: Charge) -> None:
        time, lines = self._time, self._lines
        while True:
            waiter = lines.prepare(sleeper, AWaiter)
            seconds = time.seconds_to(sleeper.due_ms)
            if seconds <= 0 or (time.is_injected and time.left_s() < 0):
                return
            if seconds <= WATCH_S or not lines.watches(sleeper):
                await self._sleep(waiter, seconds)
            elif not await self._sleep(waiter, max(WATCH_S, seconds * WATCHED_SHARE)):
                await self._look(sleeper, charge)

    async def _sleep(self, waiter: AWaiter, seconds: float) -> bool:
        """Sleep, and return whether the caller was woken before the time was over."""
        clock, began_s = self._time.clock, monotonic()
        steered = clock if isinstance(clock, Steered) else None
        try:
            if steered is not None:
                steered.listen(waiter.wake)
            await waiter.wait(seconds)
        except TimeoutError:
            return False
        finally:
            if steered is not None:
                steered.unlisten(waiter.wake)
            self._call.waited_s += monotonic() - began_s
        return True

    async def _look(self, sleeper: Sleeper, charge: Charge) -> None:
        """Read the bucket for all callers of this process that wait for it."""
        if self._time.seconds_to(sleeper.due_ms) <= WATCH_S:
            return
        charging, bucket = self._charging, (charge.entity_id, charge.resource)
        read = partial(charging.buckets.get, charging.namespace_id, *bucket, charging.clock)
        with suppress(ZAELimiterError, TimeoutError):  # a hint: the reservation is there anyway
            image = await awithin(LONGEST_LOOK_S, read)
            if image is not None and not isinstance(image, CombinedImage):
                self._lines.see(sleeper, image, self._time.clock())

    # --- ending

    async def _forfeit(self, taken: Taken, grant: Grant) -> None:
        """Correct what is counted for a reservation that has lapsed. Its tokens are lost."""
        settlements = [each._replace(forfeits=True) for each in self._settlements(grant)]
        await self._call.settle_quietly(tuple(settlements), taken.settled)
        taken.settled.outcome = None  # also if that failed: nothing of it is to be given back

    def _settlements(self, grant: Grant) -> list[Settlement]:
        """Return the credits that undo a grant, as if the acquire had never been admitted."""
        refund = {name: -amount for name, amount in self._amounts.items()}
        return [each._replace(admitted=-1) for each in grant.settlements(refund, grant.holds)]

    def _rejected(self, listed: Sequence[LimitStatus]) -> RateLimitExceeded:
        """Return the error with every limit in force, those of a bucket charged before first."""
        now_ms, before = self._time.clock(), []
        for taken in self._taken:
            grant = taken.grant()
            if grant is not None and grant.reservation is not None:
                charge, reservation = grant.charges[0], grant.reservation
                if charge.entity_id != listed[0].entity_id:
                    before += statuses(charge, reservation.image_without_it(), now_ms)
        return logged(self._call, RateLimitExceeded([*before, *listed], now_ms))


def _images_at_due(grant: Grant) -> Sequence[BucketImage | Callable[[], BucketImage]]:
    """Return a bucket without the charges behind the reservation, for what remains at its due."""
    reservation = grant.reservation
    if reservation is None or reservation.shard is not WHOLE:
        return grant.images
    return (reservation.image_as_of_it(),)


_lines_guard = SignalSafeLock()


def lines_of(charging: ChargeService) -> WaitingLines:
    """Return the waiting lines that all limiters of one repository share."""
    with _lines_guard:
        lines = charging.waiting_lines
        if lines is None:
            lines = charging.waiting_lines = WaitingLines()
        return lines
