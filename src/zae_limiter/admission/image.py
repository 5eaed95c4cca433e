"""The state of one bucket, and what can be read from it at a moment.

A bucket holds every limit of one entity on one resource. Per limit there is a balance relative to
a constant epoch: the level at a moment is the balance plus all that has accrued since the epoch,
but at most the capacity. Nothing is written as time passes, so nothing can be lost or refilled
twice. A bucket that does not exist is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.bucket import accrued_milli, wait_ms

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

EPOCH_MS = 1_577_836_800_000  # 2020-01-01T00:00Z; stored balances depend on it: never change it
HOUR_MS = 3_600_000


# Far enough: what does not refill never reaches anything by itself. Fits a column of SQLite.
NEVER_MS = 2**62
Holds = Mapping[str, Mapping[int, int]]  # slots by stored name and the moment that they expire


class Rate(NamedTuple):
    """Capacity and refill of a limit in stored units.

    A limit on calls in flight refills 0; its period is how long a slot is held without renewal.
    """

    capacity_milli: int
    refill_milli: int
    period_ms: int

    @classmethod
    def of(cls, limit: Limit) -> Rate:
        return cls(limit.capacity_milli, limit.refill_amount_milli, limit.refill_period_ms)


class LimitState(NamedTuple):
    """One limit of a bucket.

    ``consumed_milli`` is net consumption since the bucket began; ``counted_milli`` is its value
    when the current usage window began.
    """

    balance_milli: int
    rate: Rate
    consumed_milli: int = 0
    counted_milli: int = 0


class BucketImage(NamedTuple):
    """A whole bucket; ``limits`` is keyed by stored name (see ``InForce.keys``).

    ``through_children`` and ``tally`` count in the current usage window: millitokens, by plain
    name, that children of the entity have counted, too; and acquires that were rejected or have
    waited, as far as clients have reported them. ``holds`` are the slots that are taken, of limits
    on calls in flight: the balance of such a limit is what is free. None if the bucket has no such
    limit.
    ``paused_until_ms`` is until when no charge is admitted, whatever the bucket holds; it may be
    over, since the next charge removes it. ``life`` tells a bucket from one of the same key that
    was deleted before: slots belong to the life in which they were taken. Empty if none ever were.
    """

    limits: dict[str, LimitState]
    config_version: int  # the newest configuration it has seen; 0: only limits of calls
    expires_ms: int | None  # TTL: may be deleted from then on, once it is full; None: never
    window_hour: int  # the hour that usage is counted for
    admitted: int = 0
    admitted_counted: int = 0
    writes: int = 0
    through_children: Mapping[str, int] | None = None  # None: nothing
    tally: Tally = NO_TALLY
    holds: Holds | None = None
    paused_until_ms: int | None = None
    life: str = ""


def is_slots(rate: Rate) -> bool:
    """Whether a limit bounds the calls in flight."""
    return rate.refill_milli == 0


def is_paused(image: BucketImage, now_ms: int) -> bool:
    """Whether the bucket admits nothing at the moment, whatever it holds."""
    return image.paused_until_ms is not None and now_ms < image.paused_until_ms


def running_pause_ms(image: BucketImage, now_ms: int) -> int | None:
    """Return until when the bucket is paused; None if it is not, or not any more."""
    return image.paused_until_ms if is_paused(image, now_ms) else None


def accrued_since_epoch(rate: Rate, now_ms: int) -> int:
    """Return what has accrued since the epoch at a rate."""
    return accrued_milli(now_ms - EPOCH_MS, rate.refill_milli, rate.period_ms)


def full_balance(rate: Rate, now_ms: int) -> int:
    """Return the balance of a limit that is exactly full."""
    return rate.capacity_milli - accrued_since_epoch(rate, now_ms)


def level_milli(state: LimitState, now_ms: int) -> int:
    """Return the tokens that a limit holds; negative while in debt."""
    rate = state.rate
    return min(rate.capacity_milli, state.balance_milli + accrued_since_epoch(rate, now_ms))


def reaches_ms(state: LimitState, wanted_milli: int) -> int:
    """Return the first moment at which the level is ``wanted_milli``, at most the capacity."""
    rate = state.rate
    if is_slots(rate):
        return EPOCH_MS if state.balance_milli >= wanted_milli else NEVER_MS
    return EPOCH_MS + wait_ms(wanted_milli - state.balance_milli, rate.refill_milli, rate.period_ms)


def is_full(state: LimitState, now_ms: int) -> bool:
    """Whether a limit is full, which is the same as absent."""
    return state.balance_milli >= full_balance(state.rate, now_ms)


def full_at_ms(image: BucketImage) -> int:
    """Return when the bucket is as good as absent.

    Every limit is full again by then, debts are repaid, slots expired, and its pause is over.
    """
    moments = [
        reaches_ms(state, state.rate.capacity_milli)
        for state in image.limits.values()
        if not is_slots(state.rate)
    ]
    if image.holds is not None:
        moments += [max(held) for held in image.holds.values() if held]
    if image.paused_until_ms is not None:
        moments.append(image.paused_until_ms)
    return max(moments, default=EPOCH_MS)
