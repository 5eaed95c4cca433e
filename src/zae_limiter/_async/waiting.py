"""Acquires that wait for tokens. They reserve, sleep until the reservation is due, and go on.

The order of the writes is the order of service, so a caller goes on without another call. A caller
that cannot reserve yet waits in the local queue of its bucket, whose head alone asks the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from zae_limiter._async.ask import AcquireCall
from zae_limiter._async.slot_waiting import SlotWaiting
from zae_limiter._async.waiting_charge import PAUSE_LOOK_S, Taken, WaitingCharge
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.quotas import QuotaHold
from zae_limiter.admission.request import (
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
from zae_limiter.admission.shards.combined import CombinedImage
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.admission.statuses import statuses
from zae_limiter.exceptions import RateLimitExceeded, ZAELimiterError
from zae_limiter.models.status import LimitStatus
from zae_limiter.runtime.calls import apause, awithin
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.locks import SignalSafeLock
from zae_limiter.runtime.waiter import ALineWaiter
from zae_limiter.waiting.line import Sleeper
from zae_limiter.waiting.lines import WaitingLines, line_key
from zae_limiter.waiting.wait_time import WaitTime

WATCH_S = 1.0  # a caller that is due later than this looks whether tokens were given back
WATCHED_SHARE = 0.25  # the part of the wait after which it looks: early enough to be useful
LONGEST_LOOK_S = 0.5  # a longer read is given up, so that the caller does not miss its due
# A random pause for callers that wait beyond the horizon, so that processes do not ask at the same
# moment.
PAUSE_S = (4.0, 8.0)
# The time after the beginning of a window at which the head of a queue asks. It is random, since
# the heads of all processes wait for the same moment.
EDGE_SPREAD_S = (0.0, 1.0)
QUICKER_MS = 50  # the pause after a rejection although the amount seems to fit


async def grant_in_time(
    call: AcquireCall, timeout: float, receipt: Receipt[ChargeOutcome]
) -> Grant:
    """Charge all buckets, each as soon as it is due, or none and raise RateLimitExceeded."""
    waiting: TokenWaiting | SlotWaiting | JointWaiting
    if call.further:
        from zae_limiter._async.several_waiting import JointWaiting

        await call.reach()
        waiting = JointWaiting(call, WaitTime(timeout, call.charging.clock))
    else:
        scope = await call.resolve()
        kind = SlotWaiting if scope.limits.has_slots else TokenWaiting
        waiting = kind(call, WaitTime(timeout, call.charging.clock))
    rejected: Sequence[LimitStatus] = ()
    is_shadowed = False
    try:
        grant = receipt.outcome = await waiting.grant()
        is_shadowed = grant.would_reject
        return grant
    except BaseException as error:
        if isinstance(error, RateLimitExceeded):
            rejected = error.statuses
        if not receipt.has_outcome:
            await waiting.give_back()
        raise
    finally:
        if rejected or is_shadowed or call.waited_s > 0:
            await call.count_end(rejected, is_shadowed=is_shadowed)


_lines_guard = SignalSafeLock()


class TokenWaiting(WaitingCharge):
    """A charge that waits for tokens, bucket by bucket."""

    def _lines_to_join(self) -> WaitingLines:
        charging = self._charging
        with _lines_guard:
            lines = charging.waiting_lines
            if lines is None:
                lines = charging.waiting_lines = WaitingLines()
            return lines

    async def grant(self) -> Grant:
        """Charge all buckets, one after the other, each when it is due; or raise.

        The parent's bucket is not reserved while the child waits. Otherwise children could reserve
        many tokens of the parent before, and use all of them at one moment.
        """
        entity_ids = [entity_id for entity_id, _ in self._call.scopes[0].buckets]
        if len(entity_ids) > 1:
            grant = await self._charge_at_once()
            if grant is not None:
                return grant
        grants = [await self._wait_for(*each) for each in enumerate(entity_ids)]
        return Grant(
            tuple([charge for grant in grants for charge in grant.charges]),
            [image for grant in grants for image in _images_at_due(grant)],
            quota_holds=_quota_holds(grants),
            would_reject=any(grant.would_reject for grant in grants),
        )

    async def _charge_at_once(self) -> Grant | None:
        """Charge the entity and its parent together; None if one of them must be waited for.

        Raise RateLimitExceeded if one of them will not hold the amounts by the deadline.
        """
        outcome = await self._ask(Taken())
        if isinstance(outcome, Grant):
            return outcome
        now_ms = self._time.clock()
        until_ms = self._time.until_ms(now_ms)
        if next_try_ms(outcome.statuses, now_ms, until_ms, until_ms) is None:
            raise self._rejected(outcome.statuses)
        return None

    async def _look_at(self, entity_id: str) -> list[LimitStatus]:
        """Read the buckets, and compare that of one entity with its charge, without making it."""
        return [each for each in await self._call.look() if each.entity_id == entity_id]

    # --- until a caller can reserve

    async def _wait_for(self, number: int, entity_id: str) -> Grant:
        """Return a grant of one bucket when it may be used; raise if that will be too late."""
        key, lines = (entity_id, self._call.resource), self._lines
        queued = self._sleeper(key)
        try:
            if self._must_queue(key):
                lines.enter_queue(queued)
                self._next_try_ms(await self._look_at(entity_id))
                await self._sleep_in_queue(queued, None)
            while True:
                taken = Taken()
                outcome = await self._ask(taken, number)
                if isinstance(outcome, Rejection):
                    again_ms = self._next_try_ms(outcome.statuses)
                    lines.enter_queue(queued)
                    paused_s = longest_pause_s(outcome.statuses)
                    if paused_s:
                        await self._sleep_through_pause(queued, entity_id, paused_s)
                    else:
                        lines.let_pass(queued, self._time.clock())
                        await self._sleep_in_queue(queued, again_ms)
                    continue
                lines.leave(queued)
                if outcome.quota_holds and queued.number and not queued.asks_with_head:
                    lines.let_all_ask(key)
                if await self._is_usable(taken, outcome):
                    return outcome
        finally:
            lines.leave(queued)

    async def _sleep_through_pause(self, queued: Sleeper, entity_id: str, paused_s: float) -> None:
        """Sleep until the pause is over or lifted. The head of the queue looks for all others."""
        clock = self._time.clock
        seen_ms = clock()
        while paused_s:
            self._lines.pause(queued, seen_ms + round(1000 * paused_s))
            await self._sleep_in_queue(queued, seen_ms + round(1000 * PAUSE_LOOK_S))
            if clock() >= queued.paused_until_ms or self._time.left_s() <= 0:
                return
            seen = await self._look_at(entity_id)
            seen_ms, paused_s = self._call.now_ms, longest_pause_s(seen)
            if paused_s:
                self._next_try_ms(seen)  # raises if the pause now ends after the deadline
        self._lines.end_pause(queued, clock())

    def _must_queue(self, key: Hashable) -> bool:
        """Tell whether other callers ask first: they wait for the horizon, or come from a pause."""
        lines = self._lines
        if self._time.left_s() * 1000 > HORIZON_MS:
            return lines.has_queue(key)
        return lines.resumes(key, self._time.clock())

    def _next_try_ms(self, listed: Sequence[LimitStatus]) -> int:
        """Return the moment to ask again; raise if the tokens will not be there in time."""
        now_ms = self._time.clock()
        deadline_ms = self._time.until_ms(now_ms)
        horizon_ms = bound_ms(deadline_ms, now_ms)
        again_ms = next_try_ms(listed, now_ms, horizon_ms, deadline_ms)
        if again_ms is None or self._time.left_s() <= 0:
            raise self._rejected(listed)
        if any(each.exceeded and each.limit.is_quota for each in listed):
            again_ms += int(random.uniform(*EDGE_SPREAD_S) * 1000)
            return min(again_ms, max(now_ms + QUICKER_MS, deadline_ms))
        fits_ms = now_ms + round(RateLimitExceeded(listed).retry_after_seconds * 1000)
        if again_ms <= now_ms:  # the amount seems to fit, so other clients were quicker
            return now_ms + QUICKER_MS
        if fits_ms > horizon_ms:  # callers of other processes also wait for the horizon
            pause_ms = int(random.uniform(*PAUSE_S) * 1000)
            again_ms = max(again_ms, min(now_ms + pause_ms, fits_ms))
        return again_ms

    # --- until the reservation is due

    async def _is_usable(self, taken: Taken, grant: Grant) -> bool:
        """Sleep until a reservation is due; False if it has lapsed and must be made again."""
        reservation = grant.reservation
        if reservation is None or reservation.due_ms <= self._call.now_ms:
            return True  # the tokens are there already
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
        with suppress(ZAELimiterError, TimeoutError):  # the reservation is valid without this read
            image = await awithin(LONGEST_LOOK_S, read)
            if image is not None and not isinstance(image, CombinedImage):
                self._lines.note_image(sleeper, image)

    async def _forfeit(self, taken: Taken, grant: Grant) -> None:
        """Correct the counted usage of a reservation that has lapsed. Its tokens are lost."""
        settlements = [replace(each, forfeits=True) for each in grant.undo(admitted=1)]
        await self._call.settle_quietly(tuple(settlements), taken.settled)
        taken.settled.outcome = None  # even if the write failed, nothing of it is given back


def _quota_holds(grants: Sequence[Grant]) -> tuple[tuple[QuotaHold, ...], ...]:
    """Return the holds of all charges; none if no bucket has a quota."""
    if not any(grant.quota_holds for grant in grants):
        return ()
    return tuple([holds for grant in grants for holds in grant.quota_holds or ((),)])


def _images_at_due(grant: Grant) -> Sequence[BucketImage | Callable[[], BucketImage]]:
    """Return the bucket at the due of a reservation, without the charges behind it."""
    reservation = grant.reservation
    if reservation is None or reservation.shard is not WHOLE:
        return grant.images
    return (reservation.image_as_of_it(),)
