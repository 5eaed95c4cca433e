"""The documented token-bucket arithmetic: pure functions on integers, with time as an argument.

``accrued_milli`` and ``wait_ms`` are the two formulas of the whole package. The engines use them in
``zae_limiter.admission``, which counts from a fixed epoch and so stores no refill time.
The functions on ``BucketState`` are public, for programs that keep a bucket themselves. They count
from the same epoch, so that a fraction of a millitoken is never credited twice and never lost,
however often they are called.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.models.timestamps import MILLI

if TYPE_CHECKING:
    from zae_limiter.models.bucket import BucketState

EPOCH_MS = 1_577_836_800_000  # 2020-01-01T00:00Z; stored balances depend on it: never change it


class RefillResult(NamedTuple):
    """A bucket after time has passed."""

    new_tokens_milli: int
    new_last_refill_ms: int


class ConsumeResult(NamedTuple):
    """A bucket after an attempt to consume."""

    success: bool
    new_tokens_milli: int
    new_last_refill_ms: int
    available: int
    retry_after_seconds: float


def accrued_milli(elapsed_ms: int, refill_amount_milli: int, refill_period_ms: int) -> int:
    """Return the millitokens that accrue in ``elapsed_ms``, rounded down. They may be negative."""
    return elapsed_ms * refill_amount_milli // refill_period_ms


def wait_ms(deficit_milli: int, refill_amount_milli: int, refill_period_ms: int) -> int:
    """Return the shortest time in which ``deficit_milli`` accrue; inverse of ``accrued_milli``."""
    return -(-deficit_milli * refill_period_ms // refill_amount_milli)


def refill_bucket(
    tokens_milli: int,
    last_refill_ms: int,
    now_ms: int,
    capacity_milli: int,
    refill_amount_milli: int,
    refill_period_ms: int,
) -> RefillResult:
    """Add the accrued millitokens, up to the capacity, and advance the refill time.

    Only whole milliseconds are credited, each of them once: the refill time advances to the first
    one at which the added millitokens have accrued, and the rest of the time counts for the next
    refill. Calls in between credit exactly as much as one call at the end.
    """
    if now_ms <= last_refill_ms or not refill_amount_milli:  # slots do not refill
        return RefillResult(tokens_milli, last_refill_ms)
    before = accrued_milli(last_refill_ms - EPOCH_MS, refill_amount_milli, refill_period_ms)
    after = accrued_milli(now_ms - EPOCH_MS, refill_amount_milli, refill_period_ms)
    if after == before:
        return RefillResult(tokens_milli, last_refill_ms)
    refilled_ms = EPOCH_MS + wait_ms(after, refill_amount_milli, refill_period_ms)
    return RefillResult(min(capacity_milli, tokens_milli + after - before), refilled_ms)


def refill_state(state: BucketState, now_ms: int) -> RefillResult:
    """Return a state at a later moment, if nothing is charged meanwhile.

    Held slots and held amounts stay held. A quota does not refill: it is full when its window ends.
    """
    terms = state.terms
    if terms is not None and terms.is_quota:
        if state.window_end is None or now_ms < round(state.window_end.timestamp() * 1000):
            return RefillResult(state.tokens_milli, state.last_refill_ms)
        return RefillResult(state.capacity_milli, now_ms)
    return refill_bucket(
        state.tokens_milli,
        state.last_refill_ms,
        now_ms,
        state.capacity_milli,
        state.refill_amount_milli,
        state.refill_period_ms,
    )


def try_consume(state: BucketState, requested: int, now_ms: int) -> ConsumeResult:
    """Take ``requested`` tokens if the bucket holds them; otherwise only refill it."""
    refill = refill_state(state, now_ms)
    needed_milli = requested * MILLI
    left_milli = refill.new_tokens_milli - needed_milli
    if left_milli >= 0:
        return ConsumeResult(True, left_milli, refill.new_last_refill_ms, left_milli // MILLI, 0.0)
    retry_s = math.inf
    if needed_milli <= state.capacity_milli:
        retry_s = _retry_after_s(state, refill, -left_milli, now_ms)
    return ConsumeResult(False, *refill, refill.new_tokens_milli // MILLI, retry_s)


def _retry_after_s(
    state: BucketState, refill: RefillResult, deficit_milli: int, now_ms: int
) -> float:
    """Return the seconds until ``deficit_milli`` have accrued since the refill, exactly."""
    amount, period_ms = state.refill_amount_milli, state.refill_period_ms
    if not amount or (state.terms is not None and state.terms.is_quota):
        return calculate_retry_after(deficit_milli, amount, period_ms)
    before = accrued_milli(refill.new_last_refill_ms - EPOCH_MS, amount, period_ms)
    enough_ms = EPOCH_MS + wait_ms(before + deficit_milli, amount, period_ms)
    return (enough_ms - now_ms) / 1000


def force_consume(state: BucketState, amount: int, now_ms: int) -> RefillResult:
    """Take ``amount`` tokens even if the bucket holds fewer; a negative amount returns them."""
    refill = refill_state(state, now_ms)
    return RefillResult(refill.new_tokens_milli - amount * MILLI, refill.new_last_refill_ms)


def calculate_retry_after(
    deficit_milli: int, refill_amount_milli: int, refill_period_ms: int
) -> float:
    """Return the seconds until ``deficit_milli`` have accrued, rounded up to the millisecond.

    The result is infinite for a limit that does not refill.
    """
    if deficit_milli <= 0:
        return 0.0
    if not refill_amount_milli:
        return math.inf
    return wait_ms(deficit_milli, refill_amount_milli, refill_period_ms) / 1000


def calculate_available(state: BucketState, now_ms: int) -> int:
    """Return the whole tokens at ``now_ms``; negative while in debt."""
    return refill_state(state, now_ms).new_tokens_milli // MILLI


def would_refill_satisfy(state: BucketState, requested: int, now_ms: int) -> bool:
    """Tell whether the bucket holds ``requested`` tokens at ``now_ms``."""
    return refill_state(state, now_ms).new_tokens_milli >= requested * MILLI
