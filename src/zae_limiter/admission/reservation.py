"""Reservations: charges of callers that wait, written before the tokens have accrued.

A reservation is an ordinary charge with one bound changed: a limit that it names must hold the
amount by the caller's deadline, not at the stamp. The level goes below zero, so callers that do not
wait are rejected, and the order of the writes is the order of service for all processes. The item
that the write returns says when the caller may go on: the first moment at which the tokens of all
charges up to its own have accrued.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    is_quota,
    is_soft,
    reaches_ms,
)
from zae_limiter.admission.shards.tree import WHOLE, Shard

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus

# If a process dies, its reservations are lost: at most the tokens of this time.
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

    ``limits`` are the rates that it names, with the balances that they would have if nothing had
    been written after it; quotas and soft limits are not waited for. ``image`` is the bucket or
    shard after the write.
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
            key: replace(state, balance_milli=balances_milli[key])
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
            limits[key] = replace(state, balance_milli=balance)
        return self.image._replace(limits=limits)


class Waking(Enum):
    """The next step of a caller that wakes at, or after, its due."""

    ENTER = "the tokens are used"
    LATE = "its deadline has passed: the tokens are given back"
    LAPSED = "its due has passed long ago: the tokens are lost"


def on_waking(after_due_ms: float, after_deadline_ms: float) -> Waking:
    """Decide the next step of a caller; a time is negative while its moment is still to come."""
    if after_due_ms > LAPSE_MS:
        return Waking.LAPSED
    return Waking.LATE if after_deadline_ms > LATE_MS else Waking.ENTER


def bound_ms(until_ms: int | None, now_ms: int) -> int:
    """Return the moment by which a charge must fit: the stamp for one that does not wait."""
    if until_ms is None or until_ms <= now_ms:
        return now_ms
    return min(until_ms, now_ms + HORIZON_MS)


def advance_milli(rate: Rate, amount_milli: int, now_ms: int, until_ms: int | None) -> int:
    """Return the tokens that a charge may count on beyond the level at the stamp.

    Those are the tokens that accrue until ``until_ms``. The result is 0 for a charge that does not
    wait and for a limit that the charge does not name, and negative if the amount exceeds the
    capacity: such a charge never fits.
    """
    if until_ms is None or not amount_milli or is_quota(rate):
        return 0  # nobody reserves over the edge of a window
    if amount_milli > rate.capacity_milli:
        return -rate.capacity_milli
    by_ms = bound_ms(until_ms, now_ms)
    return accrued_since_epoch(rate, by_ms) - accrued_since_epoch(rate, now_ms)


def reserved(
    image: BucketImage,
    amounts_milli: Mapping[str, int],
    place: Place,
    behind_milli: Mapping[str, int],
    shard: Shard = WHOLE,
) -> Reservation:
    """Return the reservation of a charge from the bucket after its write.

    ``behind_milli`` are the amounts that the same write has charged for callers behind it.
    """
    limits = {}
    for key, amount in amounts_milli.items():
        state = image.limits[key]
        if amount and not is_quota(state.rate) and not is_soft(state.rate):
            balance = state.balance_milli + behind_milli.get(key, 0)
            limits[key] = replace(state, balance_milli=balance)
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
        if status.limit.is_quota:  # nobody reserves over the edge of a window
            latest_ms = max(latest_ms, fits_ms)
        elif status.paused_seconds:
            paused_ms = now_ms + round(status.paused_seconds * 1000)
            latest_ms = max(latest_ms, paused_ms, fits_ms - HORIZON_MS)
        else:
            latest_ms = max(latest_ms, fits_ms if fits_ms <= until_ms else fits_ms - HORIZON_MS)
    return latest_ms
