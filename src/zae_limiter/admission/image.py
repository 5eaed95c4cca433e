"""The state of one bucket, and its level at a given moment.

A bucket holds every limit of one entity on one resource. Each limit has a balance that is relative
to a constant epoch: the level at a moment is the balance plus the tokens that have accrued since
the epoch, but at most the capacity. Nothing is written as time passes, so no refill can be lost or
made twice. A bucket that does not exist is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.admission.windows import (
    QuotaState,
    Terms,
    free_level,
    kept_until_ms,
    window_of,
)
from zae_limiter.bucket import EPOCH_MS, wait_ms

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

HOUR_MS = 3_600_000
# The moment at which a limit without refill reaches a higher level. It fits a column of SQLite.
NEVER_MS = 2**62
Holds = Mapping[str, Mapping[int, int]]  # held slots by stored name and moment of expiry


class Rate(NamedTuple):
    """Capacity and refill of a limit in stored units.

    A limit on calls in flight has a refill of 0; its period is the time for which a slot is held
    without renewal. Quotas and soft limits have ``terms``. The capacity of a quota is its amount,
    in billionths if it is a budget; it accrues by windows, and its refill is there for readers.
    """

    capacity_milli: int
    refill_milli: int
    period_ms: int
    terms: Terms | None = None

    @classmethod
    def of(cls, limit: Limit) -> Rate:
        return cls(
            limit.capacity_milli,
            limit.refill_amount_milli,
            limit.refill_period_ms,
            Terms.of(limit),
        )


@dataclass(slots=True)
class LimitState:
    """One limit of a bucket.

    ``number`` is that of the limit's life, which only slots and quotas have: it ends when the limit
    becomes one of another kind, calendar or currency, and what calls hold of it ends with it. The
    number is the count of the bucket's writes when the life began, so that no later life under the
    same name has it again.
    """

    balance_milli: int
    rate: Rate
    consumed_milli: int = 0  # net, since the bucket was created
    counted_milli: int = 0  # of that, before the open hour
    quota: QuotaState | None = None  # None unless the limit is a quota
    number: int = 0


class BucketImage(NamedTuple):
    """A whole bucket; ``limits`` is keyed by stored name (see ``InForce.keys``).

    ``holds`` are the taken slots of limits on calls in flight, whose balance is the number of free
    slots; None if the bucket has no such limit. ``paused_until_ms`` is the end of a pause, during
    which no charge is admitted. This moment may have passed: the next charge removes it. ``life``
    distinguishes the bucket from a deleted bucket with the same key, since slots and amounts of
    quotas belong to the life in which they were taken; it is empty if the bucket never had any.
    """

    limits: dict[str, LimitState]
    config_version: int  # the newest that the bucket has seen; 0 if it has limits of calls only
    expires_ms: int | None  # TTL: from this moment on a full bucket may be deleted; None: never
    hour: int  # the open hour of usage, see ``admission.usage``
    admitted: int = 0  # acquires since the bucket was created
    admitted_counted: int = 0  # those of earlier hours
    writes: int = 0
    # What children count as well in the open hour: millitokens by plain name; None: nothing.
    through_children: Mapping[str, int] | None = None
    tally: Tally = NO_TALLY  # of the open hour, as far as clients have reported it
    holds: Holds | None = None
    paused_until_ms: int | None = None
    life: str = ""


def is_slots(rate: Rate) -> bool:
    """Tell whether a limit bounds the calls in flight."""
    return rate.refill_milli == 0


def is_quota(rate: Rate) -> bool:
    """Tell whether a limit accrues by windows, so that its charges are held until they settle."""
    return rate.terms is not None and rate.terms.window is not None


def is_same_kind(before: Rate, after: Rate) -> bool:
    """Tell whether both are rates, slots or quotas, and count in one unit.

    What was taken from a limit of another kind is not given back to it, nor are its debts.
    """
    if before == after:  # as it is almost always
        return True
    if is_slots(before) != is_slots(after):
        return False
    if before.terms is None and after.terms is None:
        return True
    return is_quota(before) == is_quota(after) and _currency(before) == _currency(after)


def _currency(rate: Rate) -> str | None:
    return None if rate.terms is None else rate.terms.currency


def is_soft(rate: Rate) -> bool:
    """Tell whether a limit is charged like a debt and never rejects."""
    return rate.terms is not None and rate.terms.soft


def is_split(rate: Rate) -> bool:
    """Tell whether shards of a bucket have shares of a limit; otherwise the first has all of it."""
    return rate.refill_milli != 0 and not is_quota(rate)


def is_paused(image: BucketImage, now_ms: int) -> bool:
    """Tell whether a pause stops every charge at this moment."""
    return image.paused_until_ms is not None and now_ms < image.paused_until_ms


def running_pause_ms(image: BucketImage, now_ms: int) -> int | None:
    """Return the end of a pause that is still running; None if the bucket is not paused now."""
    return image.paused_until_ms if is_paused(image, now_ms) else None


def accrued_since_epoch(rate: Rate, now_ms: int) -> int:
    """Return the millitokens that have accrued since the epoch at a rate.

    This is ``bucket.accrued_milli``, written out: an acquire needs it twice for every limit.
    """
    return (now_ms - EPOCH_MS) * rate.refill_milli // rate.period_ms


def full_balance(rate: Rate, now_ms: int) -> int:
    """Return the balance of a limit that is exactly full."""
    return rate.capacity_milli - accrued_since_epoch(rate, now_ms)


def level_milli(state: LimitState, now_ms: int) -> int:
    """Return the tokens that a limit holds; negative while in debt."""
    if state.quota is not None:
        return _quota_level(state, state.quota, now_ms)
    rate = state.rate
    level = state.balance_milli + accrued_since_epoch(rate, now_ms)
    if level > rate.capacity_milli:
        return rate.capacity_milli  # the surplus is lost
    return level


def _quota_level(state: LimitState, quota: QuotaState, now_ms: int) -> int:
    rate = state.rate
    assert rate.terms is not None, "a quota has windows"
    assert rate.terms.window is not None, "a quota has windows"
    return free_level(rate.terms.window, state.balance_milli, rate.capacity_milli, quota, now_ms)


def reaches_ms(state: LimitState, wanted_milli: int) -> int:
    """Return the first moment at which the level is ``wanted_milli``, at most the capacity."""
    rate = state.rate
    assert state.quota is None, "a quota is reached at a moment that depends on its holds"
    if is_slots(rate):
        return EPOCH_MS if state.balance_milli >= wanted_milli else NEVER_MS
    return EPOCH_MS + wait_ms(wanted_milli - state.balance_milli, rate.refill_milli, rate.period_ms)


def is_full(state: LimitState, now_ms: int) -> bool:
    """Tell whether a limit is full. A full limit and an absent one are the same."""
    if state.quota is not None:
        return _over_at_ms(state, state.quota) <= now_ms
    return state.balance_milli >= full_balance(state.rate, now_ms)


def full_at_ms(image: BucketImage) -> int:
    """Return the moment from which on the bucket is the same as an absent one.

    By then every limit is full, debts are repaid, slots have expired and the pause is over.
    """
    moments = [
        reaches_ms(state, state.rate.capacity_milli)
        if state.quota is None
        else _over_at_ms(state, state.quota)
        for state in image.limits.values()
        if not is_slots(state.rate)
    ]
    if image.holds is not None:
        moments += [max(held) for held in image.holds.values() if held]
    if image.paused_until_ms is not None:
        moments.append(image.paused_until_ms)
    return max(moments, default=EPOCH_MS)


def _over_at_ms(state: LimitState, quota: QuotaState) -> int:
    """Return the moment from which on nobody needs the balance of a quota any more.

    By then its window has ended long ago, and all holds have expired.
    """
    terms = state.rate.terms
    assert terms is not None, "a quota has windows"
    assert terms.window is not None, "a quota has windows"
    last_hold_ms = max([expires_s * 1000 for _, expires_s, _ in quota.holds], default=EPOCH_MS)
    return max(kept_until_ms(terms.window, window_of(state.balance_milli)), last_hold_ms)
