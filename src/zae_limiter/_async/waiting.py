"""Acquires that wait for tokens: reserve, sleep until the reservation is due, go on.

The order of the writes is the order of service, so nothing is asked or written when a caller goes
on. A caller that cannot reserve yet waits in the local queue of its bucket; only its head asks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from zae_limiter._async.acquire import AcquireCall
from zae_limiter._async.slot_waiting import SlotWaiting
from zae_limiter._async.waiting_charge import PAUSE_LOOK_S, Taken, WaitingCharge
from zae_limiter.admission.charge import statuses, under_limits
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import (
    AcquireEnd,
    Charge,
    ChargeOutcome,
    Grant,
    Rejection,
)
from zae_limiter.admission.reservation import (
    HORIZON_MS,
    Waking,
    bound_ms,
    longest_pause_s,
    next_try_ms,
    on_waking,
)
from zae_limiter.admission.resolution import Scope
from zae_limiter.admission.shards.combined import CombinedImage
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.concurrency.calls import apause, awithin
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.concurrency.waiter import ALineWaiter
from zae_limiter.concurrency.waiting_line import Sleeper, line_key
from zae_limiter.exceptions import RateLimitExceeded, ZAELimiterError
from zae_limiter.models.status import LimitStatus

WATCH_S = 1.0  # a caller that is due later than that looks whether tokens were given back
WATCHED_SHARE = 0.25  # of the wait: the read comes early enough to matter, and seldom
LONGEST_LOOK_S = 0.5  # a read that takes longer is given up: the caller must not miss its due
# Processes whose callers all wait for the horizon to come near do not ask at the same moment.
PAUSE_S = (4.0, 8.0)
QUICKER_MS = 50  # between two attempts at an amount that several shards hold only together


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
        scope = await self.scope()
        kind = SlotWaiting if scope.has_slots else TokenWaiting
        waiting = kind(self, amounts)
        rejected: Sequence[LimitStatus] = ()
        try:
            grant = await waiting.charge(scope)
            receipt.outcome = grant
            return grant
        except BaseException as error:
            if isinstance(error, RateLimitExceeded):
                rejected = error.statuses
            if not receipt.is_committed:
                await waiting.give_back()
            raise
        finally:
            self._count_end(scope, rejected)

    def _count_end(self, scope: Scope, rejected: Sequence[LimitStatus]) -> None:
        """Count the acquire if it ends in a rejection, or has waited."""
        has_waited = self.waited_s > 0
        if rejected or has_waited:
            charging = self.charging
            ended = AcquireEnd(scope.resource, scope.buckets, rejected, has_waited, charging.clock)
            charging.buckets.count(charging.namespace_id, ended)


class TokenWaiting(WaitingCharge):
    """A charge that waits for tokens, bucket by bucket."""

    async def charge(self, scope: Scope) -> Grant:
        """Charge all buckets, one after the other, each when it is due; or raise.

        The parent's bucket is not reserved while the child waits: all that its children had
        reserved before could be used at one moment.
        """
        entity_ids = [entity_id for entity_id, _ in scope.buckets]
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

    async def _seen(self, number: int) -> Rejection:
        """Compare one bucket with the charge, without asking for it."""
        charging, clock = self._charging, self._charging.clock
        scope, now_ms = await charging.scope(self._call, clock())
        self._stamp_ms = now_ms
        images, charges = await charging.images(scope), scope.charges(self._amounts)
        if number >= len(charges):
            return Rejection(())
        charge = charges[number]
        image = under_limits(images[number], charge.in_force, now_ms)
        return Rejection(tuple(statuses(charge, image, now_ms)))

    # --- until a caller can reserve

    async def _wait_for(self, number: int, entity_id: str) -> Grant:
        """Return when the tokens of one bucket may be used; raise if they will not be in time."""
        key, lines = (entity_id, self._call.resource), self._lines
        queued = self._sleeper(key)
        try:
            if self._must_queue(key):
                lines.enter_queue(queued)
                self._next_try_ms(await self._seen(number))
                await self._sleep_in_queue(queued, None)
            while True:
                taken = Taken()
                outcome = await self._ask(number, taken)
                if isinstance(outcome, Rejection):
                    again_ms = self._next_try_ms(outcome)
                    lines.enter_queue(queued)
                    paused_s = longest_pause_s(outcome.statuses)
                    if paused_s:
                        await self._sleep_through_pause(queued, number, paused_s)
                    else:
                        lines.let_pass(queued, self._time.clock())
                        await self._sleep_in_queue(queued, again_ms)
                    continue
                lines.leave(queued)
                if await self._is_usable(taken, outcome):
                    return outcome
        finally:
            lines.leave(queued)

    async def _sleep_through_pause(self, queued: Sleeper, number: int, paused_s: float) -> None:
        """Return when the pause is over or was lifted; what the head sees is for all behind it."""
        clock = self._time.clock
        seen_ms = clock()
        while paused_s:
            self._lines.pause(queued, seen_ms + round(1000 * paused_s))
            await self._sleep_in_queue(queued, seen_ms + round(1000 * PAUSE_LOOK_S))
            if clock() >= queued.paused_until_ms or self._time.left_s() <= 0:
                return
            seen = await self._seen(number)
            seen_ms, paused_s = self._stamp_ms, longest_pause_s(seen.statuses)
            if paused_s:
                self._next_try_ms(seen)  # raises if it was made longer than the caller can wait
        self._lines.end_pause(queued, clock())

    def _must_queue(self, key: Hashable) -> bool:
        """Tell whether other callers have to ask first: those for the horizon, or after a pause."""
        lines = self._lines
        if self._time.left_s() * 1000 > HORIZON_MS:
            return lines.has_queue(key)
        return lines.resumes(key, self._time.clock())

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

    # --- until the reservation is due

    async def _is_usable(self, taken: Taken, grant: Grant) -> bool:
        """Sleep until a reservation is due; False if it has lapsed and has to be made again."""
        reservation = grant.reservation
        if reservation is None or reservation.due_ms <= self._stamp_ms:
            return True  # the tokens are there
        charge, time = grant.charges[0], self._time
        sleeper = self._sleeper(line_key(grant), reservation)
        time.synchronize()
        self._lines.reserve(sleeper)
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

    async def _sleep_until_due(self, sleeper: Sleeper, charge: Charge) -> None:
        time, lines = self._time, self._lines
        while True:
            waiter = lines.prepare(sleeper, ALineWaiter)
            seconds = time.seconds_to(sleeper.due_ms)
            if seconds <= 0 or (time.is_injected and time.left_s() < 0):
                return
            moves_in_s = lines.moves_in_s(sleeper)
            if moves_in_s == 0:
                lines.move_up(sleeper, time.clock())
                await apause()
            elif moves_in_s is not None:
                await self._sleep(waiter, min(seconds, moves_in_s))
            elif seconds <= WATCH_S or not lines.watches(sleeper):
                await self._sleep(waiter, seconds)
            elif not await self._sleep(waiter, max(WATCH_S, seconds * WATCHED_SHARE)):
                await self._look(sleeper, charge)

    async def _look(self, sleeper: Sleeper, charge: Charge) -> None:
        """Read the bucket for all callers of this process that wait for it."""
        if self._time.seconds_to(sleeper.due_ms) <= WATCH_S:
            return
        charging, bucket = self._charging, (charge.entity_id, charge.resource)
        read = partial(charging.buckets.get, charging.namespace_id, *bucket, charging.clock)
        with suppress(ZAELimiterError, TimeoutError):  # a hint: the reservation is there anyway
            image = await awithin(LONGEST_LOOK_S, read)
            if image is not None and not isinstance(image, CombinedImage):
                self._lines.note_image(sleeper, image)

    async def _forfeit(self, taken: Taken, grant: Grant) -> None:
        """Correct what is counted for a reservation that has lapsed. Its tokens are lost."""
        settlements = [each._replace(forfeits=True) for each in self._settlements(grant)]
        await self._call.settle_quietly(tuple(settlements), taken.settled)
        taken.settled.outcome = None  # also if that failed: nothing of it is to be given back


def _images_at_due(grant: Grant) -> Sequence[BucketImage | Callable[[], BucketImage]]:
    """Return a bucket without the charges behind the reservation, for what remains at its due."""
    reservation = grant.reservation
    if reservation is None or reservation.shard is not WHOLE:
        return grant.images
    return (reservation.image_as_of_it(),)
