"""The two formulas of the package, and the documented functions that are built on them."""

import math
from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.property.strategies import CENTURY_MS, limits, moments, rates, steps
from zae_limiter import BucketState
from zae_limiter.admission.image import Rate, accrued_since_epoch
from zae_limiter.bucket import (
    EPOCH_MS,
    accrued_milli,
    calculate_available,
    calculate_retry_after,
    force_consume,
    refill_bucket,
    try_consume,
    wait_ms,
    would_refill_satisfy,
)

amounts_milli = st.integers(-(10**24), 10**24) | st.integers(-3, 3)
elapsed_ms = st.integers(-2 * CENTURY_MS, 2 * CENTURY_MS) | st.integers(-3, 3)
FASTEST = Rate(10**18, 10**18, 1000)  # 10^15 tokens a second


@given(elapsed_ms, rates())
@example(-1, FASTEST)
@example(-2 * CENTURY_MS, FASTEST)
def test_what_has_accrued_is_the_exact_product_rounded_down(elapsed, rate):
    exact = Fraction(elapsed * rate.refill_milli, rate.period_ms)
    assert accrued_milli(elapsed, rate.refill_milli, rate.period_ms) == math.floor(exact)
    assert accrued_since_epoch(rate, EPOCH_MS + elapsed) == math.floor(exact)


@given(amounts_milli, rates())
@example(1, FASTEST)
@example(-1, FASTEST)
def test_the_wait_is_the_first_moment_that_brings_the_deficit(deficit, rate):
    wait = wait_ms(deficit, rate.refill_milli, rate.period_ms)
    assert accrued_milli(wait, rate.refill_milli, rate.period_ms) >= deficit
    assert accrued_milli(wait - 1, rate.refill_milli, rate.period_ms) < deficit


@given(moments(), elapsed_ms, rates())
def test_accrual_between_two_moments_is_exact_to_one_millitoken(start, elapsed, rate):
    between = accrued_since_epoch(rate, start + elapsed) - accrued_since_epoch(rate, start)
    exact = Fraction(elapsed * rate.refill_milli, rate.period_ms)
    assert abs(between - exact) < 1


@given(rates())
def test_accrual_is_zero_at_the_epoch_and_negative_before(rate):
    assert accrued_since_epoch(rate, EPOCH_MS) == 0
    assert accrued_since_epoch(rate, EPOCH_MS - 1) <= -1


# --- the documented functions, on a bucket held by hand


@st.composite
def held(draw):
    limit, now_ms = draw(limits()), draw(moments())
    level = draw(st.integers(-2 * limit.capacity_milli, limit.capacity_milli))
    return BucketState(
        "user-1",
        "gpt-4",
        limit.name,
        level,
        now_ms,
        limit.capacity_milli,
        limit.refill_amount_milli,
        limit.refill_period_ms,
    )


@given(held(), elapsed_ms)
def test_a_refill_adds_tokens_and_uses_up_time_as_documented(state, elapsed):
    now_ms = state.last_refill_ms + elapsed
    tokens, refilled_ms = refill_bucket(
        state.tokens_milli,
        state.last_refill_ms,
        now_ms,
        state.capacity_milli,
        state.refill_amount_milli,
        state.refill_period_ms,
    )
    if elapsed <= 0:
        assert (tokens, refilled_ms) == (state.tokens_milli, state.last_refill_ms)
        return
    rate = Rate(state.capacity_milli, state.refill_amount_milli, state.refill_period_ms)
    added = accrued_since_epoch(rate, now_ms) - accrued_since_epoch(rate, state.last_refill_ms)
    assert tokens == min(state.capacity_milli, state.tokens_milli + added)
    assert state.last_refill_ms <= refilled_ms <= now_ms
    assert accrued_since_epoch(rate, refilled_ms) == accrued_since_epoch(rate, now_ms)


@given(rates(), moments(), st.lists(st.integers(0, 10**7) | st.integers(0, 3), max_size=30))
@example(Rate(100_000, 100_000, 60_000), 0, [1] * 600)
@example(Rate(100_000, 100_000, 60_000), EPOCH_MS + 1, [1] * 600)
@example(Rate(1000, 1000, 86_400_000), EPOCH_MS, [50_000] * 3)
def test_calls_in_between_credit_as_much_as_one_call(rate, start, steps_ms):
    unlimited = 10**40
    tokens, last, now = 0, start, start
    for step_ms in steps_ms:
        now += step_ms
        tokens, last = refill_bucket(
            tokens, last, now, unlimited, rate.refill_milli, rate.period_ms
        )
    once = refill_bucket(0, start, now, unlimited, rate.refill_milli, rate.period_ms)
    assert tokens == once.new_tokens_milli
    exact = Fraction((now - start) * rate.refill_milli, rate.period_ms)
    assert abs(tokens - exact) < 1


@given(held(), steps(), st.integers(0, 10**16))
def test_a_consume_takes_all_or_leaves_the_bucket_as_refilled(state, elapsed, requested):
    now_ms = state.last_refill_ms + elapsed
    refilled = force_consume(state, 0, now_ms)
    result = try_consume(state, requested, now_ms)
    assert result.success == (refilled.new_tokens_milli >= requested * 1000)
    assert result.success == would_refill_satisfy(state, requested, now_ms)
    taken = requested * 1000 if result.success else 0
    assert result.new_tokens_milli == refilled.new_tokens_milli - taken
    assert result.new_last_refill_ms == refilled.new_last_refill_ms
    assert result.available == result.new_tokens_milli // 1000
    assert result.available + taken // 1000 == calculate_available(state, now_ms)


@given(held(), steps(), st.integers(1, 10**15))
def test_a_refused_consume_succeeds_after_the_retry_time(state, elapsed, requested):
    now_ms = state.last_refill_ms + elapsed
    result = try_consume(state, requested, now_ms)
    assume(not result.success)
    if requested * 1000 > state.capacity_milli:
        assert result.retry_after_seconds == math.inf
        return
    wait = round(result.retry_after_seconds * 1000)
    assume(wait < 2**53)  # a float of seconds holds no more
    assert try_consume(state, requested, now_ms + wait).success
    assert not try_consume(state, requested, now_ms + wait - 1).success


@given(amounts_milli, rates())
def test_retry_after_is_rounded_up_to_the_millisecond_exactly(deficit, rate):
    seconds = calculate_retry_after(deficit, rate.refill_milli, rate.period_ms)
    exact_ms = math.ceil(Fraction(max(0, deficit) * rate.period_ms, rate.refill_milli))
    assert seconds == exact_ms / 1000


@given(held(), st.integers(-(10**15), 10**15))
def test_a_forced_consume_has_no_lower_bound(state, amount):
    result = force_consume(state, amount, state.last_refill_ms)
    assert result.new_tokens_milli == state.tokens_milli - amount * 1000
