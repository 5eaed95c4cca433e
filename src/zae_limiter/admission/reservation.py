"""Reservations: charges of callers that wait, written before the tokens have accrued.

A reservation is an ordinary charge with one bound changed: a limit that it names must hold the
amount by the caller's deadline, not at the stamp. The level goes below zero, so callers that do not
wait are rejected, and the order of the writes is the order of service for all processes. The item
that the write returns says when the caller may go on: the first moment at which the tokens of all
charges up to its own have accrued.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    reaches_ms,
)
from zae_limiter.admission.moves import Move, Wanted, guessed_move, held_milli
from zae_limiter.admission.shards.tree import WHOLE, Shard

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus

# What the callers of a process have reserved is lost if it dies: at most this much of the rate.
HORIZON_MS = 60_000
# A caller that wakes later than this after its due was stopped with its process: many that go on at
# once after a stop would be more than the limit allows.
LAPSE_MS = 1000
LATE_MS = 10  # after its deadline a caller does not go on; timers are that late on an idle machine

# The place of a charge among all writes to its bucket: the bucket's count of writes, and the
# position within that write.
Place = tuple[int, int]


class Reservation(NamedTuple):
    """A committed charge that may be used from ``due_ms`` on.

    ``limits`` are those that it names, with the balances that they would have if nothing had been
    written after it. ``image`` is the bucket or shard after the write.
    """

    amounts_milli: Mapping[str, int]
    limits: Mapping[str, LimitState]
    image: BucketImage
    place: Place
    shard: Shard = WHOLE

    @property
    def due_ms(self) -> int:
        """The first moment at which every limit is out of debt; 0 if the charge names none."""
        return max((reaches_ms(state, 0) for state in self.limits.values()), default=0)

    def with_balances(self, balances_milli: Mapping[str, int]) -> Reservation:
        """Return the reservation with other balances of its limits."""
        limits = {
            key: state._replace(balance_milli=balances_milli[key])
            for key, state in self.limits.items()
        }
        return self._replace(limits=limits)

    def image_as_of_it(self) -> BucketImage:
        """Return the bucket as if nothing had been written after this charge.

        At its due no limit that it names is below zero in it.
        """
        return self.image._replace(limits={**self.image.limits, **self.limits})

    def image_without_it(self) -> BucketImage:
        """Return the bucket as it would be without this charge."""
        limits = dict(self.image.limits)
        for key in self.limits:
            state = limits[key]
            balance = state.balance_milli + self.amounts_milli[key]
            limits[key] = state._replace(balance_milli=balance)
        return self.image._replace(limits=limits)


class Waking(Enum):
    """What a caller does that wakes at, or after, its due."""

    ENTER = "the tokens are used"
    LATE = "its deadline has passed: the tokens are given back"
    LAPSED = "its due has passed long ago: the tokens are lost"


def on_waking(after_due_ms: float, after_deadline_ms: float) -> Waking:
    """Decide what a caller does; both times are negative while the moment is still to come."""
    if after_due_ms > LAPSE_MS:
        return Waking.LAPSED
    return Waking.LATE if after_deadline_ms > LATE_MS else Waking.ENTER


def bound_ms(until_ms: int | None, now_ms: int) -> int:
    """Return the moment by which a charge must fit: the stamp for one that does not wait."""
    if until_ms is None or until_ms <= now_ms:
        return now_ms
    return min(until_ms, now_ms + HORIZON_MS)


def ahead_milli(rate: Rate, now_ms: int, by_ms: int) -> int:
    """Return what accrues between the stamp and a later moment."""
    return accrued_since_epoch(rate, by_ms) - accrued_since_epoch(rate, now_ms)


def fits_by(state: LimitState, amount_milli: int, now_ms: int, by_ms: int) -> bool:
    """Tell whether a limit holds an amount by a later moment, if nothing else is charged.

    A limit that the charge does not name is not reserved over: it must not be in debt now.
    """
    held = held_milli(state, 0, now_ms)
    if amount_milli == 0:
        return held >= 0
    rate = state.rate
    if amount_milli > rate.capacity_milli:
        return False
    return held + ahead_milli(rate, now_ms, by_ms) >= amount_milli


def reserve(
    state: LimitState, amount_milli: int, now_ms: int, until_ms: int | None
) -> LimitState | None:
    """Take an amount from one limit that holds it by ``until_ms``; None if it does not."""
    if not fits_by(state, amount_milli, now_ms, bound_ms(until_ms, now_ms)):
        return None
    if amount_milli == 0:
        return state
    held = held_milli(state, 0, now_ms)  # what overflowed while it was idle is lost
    return state._replace(
        balance_milli=held - accrued_since_epoch(state.rate, now_ms) - amount_milli,
        consumed_milli=state.consumed_milli + amount_milli,
    )


def reservation_moves(
    limits: Mapping[str, LimitState],
    amounts_milli: Mapping[str, int],
    now_ms: int,
    *,
    by_ms: int,
    age_ms: int,
    others_milli_per_s: Mapping[str, int],
) -> tuple[list[Move], bool]:
    """Plan a reservation as ``charge_moves`` plans a charge: its moves, and whether it fits."""
    moves, fits = [], True
    for key, amount in amounts_milli.items():
        state = limits[key]
        if not fits_by(state, amount, now_ms, by_ms):
            fits = False
        # More than the capacity never fits, also if it were let through by what accrues.
        reserves = 0 < amount <= state.rate.capacity_milli
        ahead = ahead_milli(state.rate, now_ms, by_ms) if reserves else 0
        wanted = Wanted(amount, asked=True, needed_milli=amount - ahead)
        others = others_milli_per_s.get(key, 0)
        moves.append(guessed_move(key, state, wanted, now_ms, age_ms, others))
    return moves, fits


def reserved(
    image: BucketImage,
    amounts_milli: Mapping[str, int],
    place: Place,
    behind_milli: Mapping[str, int],
    shard: Shard = WHOLE,
) -> Reservation:
    """Return the reservation of a charge from the bucket after its write.

    ``behind_milli`` is what the same write has charged for callers behind it.
    """
    limits = {}
    for key, amount in amounts_milli.items():
        if amount:
            state = image.limits[key]
            balance = state.balance_milli + behind_milli.get(key, 0)
            limits[key] = state._replace(balance_milli=balance)
    return Reservation(amounts_milli, limits, image, place, shard)


def longest_pause_s(statuses: Iterable[LimitStatus]) -> float:
    """Return for how long the buckets of a charge are still paused; 0 if none of them is."""
    return max([status.paused_seconds for status in statuses], default=0.0)


def next_try_ms(
    statuses: Iterable[LimitStatus], now_ms: int, until_ms: int, deadline_ms: int
) -> int | None:
    """Return when a caller whose reservation was rejected may ask again; None if it never fits.

    ``until_ms`` is the bound that it was judged at, ``deadline_ms`` until when it can wait. A limit
    that holds the amount before the bound was not reserved over: it is asked when it does. One that
    holds it only after the horizon is asked as soon as that has come near enough. A bucket that is
    paused is asked at the end of the pause: from then on it takes reservations again.
    """
    latest_ms = now_ms
    for status in statuses:
        if not status.exceeded:
            continue
        wait_s = status.retry_after_seconds
        if wait_s * 1000 > deadline_ms - now_ms:  # also if it is infinite
            return None
        fits_ms = now_ms + round(wait_s * 1000)
        if status.paused_seconds:
            paused_ms = now_ms + round(status.paused_seconds * 1000)
            latest_ms = max(latest_ms, paused_ms, fits_ms - HORIZON_MS)
        else:
            latest_ms = max(latest_ms, fits_ms if fits_ms <= until_ms else fits_ms - HORIZON_MS)
    return latest_ms
