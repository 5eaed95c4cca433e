"""The documented formulas, number by number."""

import math

import pytest

from zae_limiter import BucketState, Limit
from zae_limiter.bucket import (
    ConsumeResult,
    RefillResult,
    calculate_available,
    calculate_retry_after,
    force_consume,
    refill_bucket,
    try_consume,
    would_refill_satisfy,
)

NOW = 1_767_225_600_000
RPM = Limit.per_minute("rpm", 100)  # 100,000 millitokens in 60,000 ms


def bucket(tokens_milli, limit=RPM):
    return BucketState(
        "user-1",
        "gpt-4",
        limit.name,
        tokens_milli,
        NOW,
        limit.capacity_milli,
        limit.refill_amount_milli,
        limit.refill_period_ms,
    )


def refilled(tokens_milli, elapsed_ms, limit=RPM):
    return refill_bucket(
        tokens_milli,
        NOW,
        NOW + elapsed_ms,
        limit.capacity_milli,
        limit.refill_amount_milli,
        limit.refill_period_ms,
    )


@pytest.mark.parametrize(
    ("elapsed_ms", "added", "used_ms"),
    [
        (0, 0, 0),
        (1, 1, 1),  # 1.67 millitokens: one is added, the other two thirds come with the next ms
        (2, 3, 2),
        (3, 5, 3),
        (600, 1000, 600),
        (30_000, 50_000, 30_000),
    ],
)
def test_tokens_to_add_and_the_time_they_took(elapsed_ms, added, used_ms):
    assert refilled(0, elapsed_ms) == RefillResult(added, NOW + used_ms)


@pytest.mark.parametrize("step_ms", [1, 2, 7])
@pytest.mark.parametrize("start", [0, NOW, NOW + 1, 1_700_000_000_000])
def test_a_bucket_that_is_refilled_all_the_time_gets_its_rate(start, step_ms):
    tokens, last = 0, start
    for now in range(start, start + 42_000 + 1, step_ms):
        tokens, last = refill_bucket(tokens, last, now, 10**9, 100_000, 60_000)
    assert (tokens, last) == (70_000, start + 42_000)


def test_time_too_short_for_a_millitoken_is_not_used_up():
    slow = Limit.per_day("rpd", 1)  # one millitoken takes 86.4 s
    assert refilled(0, 86_399, slow) == RefillResult(0, NOW)
    assert refilled(0, 86_400, slow) == RefillResult(1, NOW + 86_400)
    assert refilled(0, 100_000, slow) == RefillResult(1, NOW + 86_400)


def test_a_refill_stops_at_the_capacity():
    assert refilled(99_999, 30_000).new_tokens_milli == 100_000
    assert refilled(100_000, 10**12).new_tokens_milli == 100_000


def test_a_refill_repays_debt():
    assert refilled(-1500_000, 900_000).new_tokens_milli == 0


@pytest.mark.parametrize("elapsed_ms", [-1, -(10**9), 0])
def test_time_that_does_not_pass_brings_nothing(elapsed_ms):
    assert refilled(500, elapsed_ms) == RefillResult(500, NOW)


def test_a_consume_that_fits():
    assert try_consume(bucket(5500), 5, NOW) == ConsumeResult(True, 500, NOW, 0, 0.0)


def test_a_consume_counts_what_has_accrued():
    assert not try_consume(bucket(0), 1, NOW + 599).success
    assert try_consume(bucket(0), 1, NOW + 600) == ConsumeResult(True, 0, NOW + 600, 0, 0.0)


def test_a_consume_that_does_not_fit_takes_nothing():
    result = try_consume(bucket(4999), 5, NOW)
    assert result == ConsumeResult(False, 4999, NOW, 4, 0.001)


def test_a_consume_beyond_the_capacity_can_never_fit():
    assert try_consume(bucket(100_000), 101, NOW).retry_after_seconds == math.inf
    assert try_consume(bucket(99_999), 100, NOW).retry_after_seconds == 0.001


def test_a_forced_consume_goes_into_debt():
    assert force_consume(bucket(500_000, Limit("tpm", 1000, 1, 1)), 2000, NOW) == RefillResult(
        -1_500_000, NOW
    )
    assert force_consume(bucket(0), -5, NOW) == RefillResult(5000, NOW)


@pytest.mark.parametrize(
    ("deficit_milli", "amount_milli", "period_ms", "seconds"),
    [
        (1000, 1000, 1000, 1.0),  # exactly a second: not a millisecond more
        (1, 1000, 1000, 0.001),
        (1, 100_000, 60_000, 0.001),
        (2, 100_000, 60_000, 0.002),
        (5, 100_000, 60_000, 0.003),
        (6, 100_000, 60_000, 0.004),
        (1, 1000, 86_400_000, 86.4),
        (1, 10**18, 1000, 0.001),
        (0, 1000, 1000, 0.0),
        (-5, 1000, 1000, 0.0),
    ],
)
def test_retry_after_is_rounded_up_exactly(deficit_milli, amount_milli, period_ms, seconds):
    assert calculate_retry_after(deficit_milli, amount_milli, period_ms) == seconds


def test_the_documented_debt_takes_a_minute_and_a_half():
    limit = Limit.per_minute("tpm", 1000)
    deficit = 1_500_000
    seconds = calculate_retry_after(deficit, limit.refill_amount_milli, limit.refill_period_ms)
    assert seconds == 90.0


def test_what_is_available_and_whether_it_is_enough():
    state = bucket(500)
    assert calculate_available(state, NOW) == 0
    assert calculate_available(state, NOW + 300) == 1
    assert calculate_available(bucket(-500), NOW) == -1
    assert not would_refill_satisfy(state, 1, NOW + 299)
    assert would_refill_satisfy(state, 1, NOW + 300)
