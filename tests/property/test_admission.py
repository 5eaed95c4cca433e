"""Decisions on a bucket: never too much, nothing lost, and exact answers about when."""

import math
from dataclasses import replace
from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.property.strategies import (
    HOUR_MS,
    images,
    limits,
    moments,
    rates,
    states,
    steps,
    tokens,
)
from tests.property.taking import take
from tests.support.changes import charged, settled
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.decide import late_amounts
from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    full_at_ms,
    full_balance,
    is_full,
    level_milli,
    reaches_ms,
)
from zae_limiter.admission.in_force import InForce, alias_of
from zae_limiter.admission.rebase import full_bucket, has_limits, rebase
from zae_limiter.admission.refills import added_milli, reset, top_up
from zae_limiter.admission.request import Charge, Settlement
from zae_limiter.admission.statuses import (
    prepared,
    retry_after_seconds,
    statuses,
    under_limits,
)
from zae_limiter.admission.usage import open_hour, roll
from zae_limiter.bucket import EPOCH_MS

FLOAT_MS = 2**53  # a float of seconds holds milliseconds exactly up to here
FASTEST = Limit("rpm", 10**15, 10**15, 1)
SLOWEST = Limit("rpm", 1, 1, 100 * 366 * 86_400)

moment_and_state = moments().flatmap(lambda now: st.tuples(st.just(now), states(now)))
moment_and_image = moments().flatmap(lambda now: st.tuples(st.just(now), images(now)))


def configured(*chosen, version=1):
    return InForce(chosen, ConfigSource.SYSTEM, version)


def brought(*chosen, beside=None):
    """Limits of a call, beside what is configured."""
    return InForce(
        chosen, ConfigSource.OVERRIDE, 0 if beside is None else beside.version, 0, beside
    )


def in_force_of(image, version=None):
    """The limits that the bucket holds, as configuration."""
    chosen = tuple(
        Limit(
            name,
            state.rate.capacity_milli // 1000,
            state.rate.refill_milli // 1000,
            state.rate.period_ms // 1000,
        )
        for name, state in image.limits.items()
    )
    return configured(*chosen, version=image.config_version if version is None else version)


# --- one limit


@given(moment_and_state, st.integers(0, 10**18))
def test_a_level_is_reached_exactly_at_its_moment(at, wanted):
    _, state = at
    assume(wanted <= state.rate.capacity_milli)
    reached = reaches_ms(state, wanted)
    assert level_milli(state, reached) >= wanted
    assert level_milli(state, reached - 1) < wanted


@given(moment_and_state, st.integers(0, 10**15))
def test_the_stated_wait_is_exact_to_the_millisecond(at, amount):
    now, state = at
    amount_milli = amount * 1000
    seconds = retry_after_seconds(state, amount_milli, now)
    if amount_milli > state.rate.capacity_milli:
        assert seconds == math.inf
        return
    assume(seconds * 1000 < FLOAT_MS)
    wait = round(seconds * 1000)
    assert take(state, amount_milli, now + wait) is not None
    if wait:
        assert take(state, amount_milli, now + wait - 1) is None


@given(moment_and_state, st.integers(0, 10**18))
def test_a_take_lowers_the_level_by_exactly_the_amount(at, amount):
    now, state = at
    level = level_milli(state, now)
    after = take(state, amount, now)
    assert (after is not None) == (level >= amount)
    if after is not None:
        assert level_milli(after, now) == level - amount
        assert after.consumed_milli - state.consumed_milli == amount
        assert after.counted_milli == state.counted_milli


@given(moment_and_state, steps())
def test_never_more_than_the_capacity_however_long_it_was_idle(at, idle):
    now, state = at
    capacity = state.rate.capacity_milli
    assert take(state, capacity + 1, now) is None
    later = max(now, reaches_ms(state, capacity)) + idle
    assert take(state, capacity + 1, later) is None
    emptied = take(state, capacity, later)
    assert emptied is not None
    assert level_milli(emptied, later) == 0
    assert take(emptied, 1, later) is None


@given(moment_and_state)
def test_in_debt_even_nothing_is_refused(at):
    now, state = at
    in_debt = replace(
        state, balance_milli=full_balance(state.rate, now) - state.rate.capacity_milli - 1
    )
    assert level_milli(in_debt, now) == -1
    assert take(in_debt, 0, now) is None


@given(
    moments(),
    rates(),
    st.lists(st.tuples(steps(), st.integers(0, 4), st.booleans()), min_size=1, max_size=25),
)
@example(EPOCH_MS - 3, Rate.of(FASTEST), [(1, 0, True)] * 6)
@example(EPOCH_MS - 3, Rate.of(SLOWEST), [(1, 0, True), (10**9, 0, True)])
def test_in_every_window_takes_are_within_capacity_plus_accrued(start, rate, visits):
    now, state = start, LimitState(full_balance(rate, start), rate)
    grants = []
    for step, share, everything in visits:
        now += step
        level = level_milli(state, now)
        amount = level if everything else level * share // 4
        after = take(state, max(0, amount), now)
        if after is not None:
            grants.append((now, after.consumed_milli - state.consumed_milli))
            state = after
    for first, (since, _) in enumerate(grants):
        taken = 0
        for at, amount in grants[first:]:
            taken += amount
            accrued = Fraction((at - since) * rate.refill_milli, rate.period_ms)
            assert taken < rate.capacity_milli + accrued + 1


@given(
    moments(),
    limits(),
    st.lists(st.tuples(st.integers(-5000, 5000), st.integers(1, 1000)), min_size=1, max_size=25),
)
def test_a_clock_that_jumps_to_and_fro_mints_nothing(start, limit, visits):
    rate = Rate.of(limit)
    state = LimitState(full_balance(rate, start), rate)
    earliest = latest = now = start
    taken = 0
    for step, amount in visits:
        now += step
        earliest, latest = min(earliest, now), max(latest, now)
        after = take(state, amount, now)
        if after is not None:
            state, taken = after, taken + amount
    accrued = Fraction((latest - earliest) * rate.refill_milli, rate.period_ms)
    assert taken < rate.capacity_milli + accrued + 1


# --- whole buckets


def milli(in_force, *amounts):
    """Amounts by stored name, in the order of the limits."""
    return dict(zip(in_force.keys, amounts, strict=True))


@given(moment_and_image, st.data())
def test_a_charge_takes_from_every_limit_or_from_none(at, data):
    now, image = at
    in_force = in_force_of(image)
    amounts = tuple(data.draw(st.integers(0, rate.capacity_milli)) for rate in in_force.rates)
    charge = Charge("user-1", "gpt-4", in_force, milli(in_force, *amounts))
    after = charged(image, charge, now)
    fits = all(
        level_milli(state, now) >= amount
        for state, amount in zip(image.limits.values(), amounts, strict=True)
    )
    assert (after is not None) == fits
    found = statuses(charge, image, now)
    assert fits == (not any(status.exceeded for status in found))
    assert [status.limit_name for status in found] == list(image.limits)
    if after is not None:
        assert after.admitted == image.admitted + 1
        for name, amount in zip(image.limits, amounts, strict=True):
            assert level_milli(after.limits[name], now) == (
                level_milli(image.limits[name], now) - amount
            )


@given(moments(), st.lists(limits(), min_size=1, max_size=1))
def test_an_absent_bucket_is_full(now, chosen):
    in_force = configured(*chosen)
    image = full_bucket(in_force, now)
    assert [level_milli(state, now) for state in image.limits.values()] == [
        limit.capacity_milli for limit in chosen
    ]
    assert full_at_ms(image) <= now
    capacities = milli(in_force, *(rate.capacity_milli for rate in in_force.rates))
    charge = Charge("user-1", "gpt-4", in_force, capacities)
    assert charged(None, charge, now) is not None


@given(moment_and_image)
def test_a_bucket_is_full_at_its_moment_and_not_before(at):
    _, image = at
    full = full_at_ms(image)
    assert all(is_full(state, full) for state in image.limits.values())
    assert not all(is_full(state, full - 1) for state in image.limits.values())


# --- other limits


@given(moment_and_state, st.lists(limits(), min_size=1, max_size=6))
def test_a_rebase_keeps_the_level_cut_at_the_new_capacity(at, chain):
    now, state = at
    image = BucketImage({"rpm": state}, 1, None, now // HOUR_MS)
    expected = level_milli(state, now)
    for version, limit in enumerate(chain, 2):
        image = rebase(image, configured(limit, version=version), now)
        expected = min(expected, limit.capacity_milli)
        assert level_milli(image.limits["rpm"], now) == expected
        assert image.limits["rpm"].consumed_milli == state.consumed_milli
        assert image.config_version == version


@given(moment_and_state, limits(), st.integers(0, 10**12))
def test_after_a_rebase_the_level_grows_at_the_new_rate(at, limit, elapsed):
    now, state = at
    image = BucketImage({"rpm": state}, 1, None, now // HOUR_MS)
    image = rebase(image, configured(limit), now)
    start = min(level_milli(state, now), limit.capacity_milli)
    accrued = Fraction(elapsed * limit.refill_amount_milli, limit.refill_period_ms)
    level = level_milli(image.limits["rpm"], now + elapsed)
    exact = min(Fraction(limit.capacity_milli), start + accrued)
    assert exact - 1 < level < exact + 1


@given(moment_and_image, limits("rpm"), limits("rph"))
def test_a_rebase_adds_missing_limits_full_and_removes_none(at, changed, added):
    now, image = at
    after = rebase(image, configured(changed, added, version=9), now)
    assert set(after.limits) == set(image.limits) | {"rpm", "rph"}
    assert level_milli(after.limits["rph"], now) == added.capacity_milli
    for name in set(image.limits) - {"rpm"}:
        assert after.limits[name] == image.limits[name]
    assert has_limits(after, configured(changed, added))


@given(moment_and_state, limits(), tokens())
def test_limits_of_a_call_leave_the_configured_ones_alone(at, limit, amount):
    now, state = at
    assume(Rate.of(limit) != state.rate)
    image = BucketImage({"rpm": state}, 3, None, now // HOUR_MS)
    own = brought(limit, beside=in_force_of(image))
    amount = min(amount, limit.capacity)
    charge = Charge("user-1", "gpt-4", own, milli(own, amount * 1000))
    alias = alias_of("rpm", Rate.of(limit))
    assert own.keys == (alias,)

    granted = charged(image, charge, now)
    assert granted.limits["rpm"] == state
    assert level_milli(granted.limits[alias], now) == (limit.capacity - amount) * 1000
    assert granted.config_version == 3

    assert under_limits(granted, own, now) == granted
    assert has_limits(granted, in_force_of(image))


@given(moment_and_state, limits())
def test_limits_of_calls_replace_each_other_if_none_is_set(at, limit):
    now, state = at
    image = BucketImage({"rpm": state}, 0, None, now // HOUR_MS)
    after = rebase(image, brought(limit), now)
    assert after.config_version == 0
    assert after.limits["rpm"].rate == Rate.of(limit)
    assert level_milli(after.limits["rpm"], now) == min(
        level_milli(state, now), limit.capacity_milli
    )


@given(limits("rpm"), limits("rpm"), limits("tpm"))
def test_a_limit_of_a_call_stands_beside_a_configured_one(one, two, tpm):
    assert brought(one, tpm, beside=configured(one)).keys == ("rpm", "tpm")
    keys = brought(one, tpm, beside=configured(two)).keys
    assert (keys == ("rpm", "tpm")) == (Rate.of(one) == Rate.of(two))
    assert keys[0] in ("rpm", alias_of("rpm", Rate.of(one)))


@given(moment_and_state, limits(), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_out_of_date_limits_are_never_applied_to_a_newer_bucket(at, limit, seen, known, own):
    now, state = at
    assume(Rate.of(limit) != state.rate)
    image = BucketImage({"rpm": state}, seen, None, now // HOUR_MS)
    other = configured(Limit("tpm", 1, 1, 1), version=known)
    in_force = brought(limit, beside=other) if own else configured(limit, version=known)
    charge = Charge("user-1", "gpt-4", in_force, milli(in_force, 0))
    assert (prepared(image, charge, now) is None) == (seen > known)
    assert prepared(image, replace(charge, refreshed=True), now) is not None


# --- debts, credits, mending


@given(moment_and_state, st.integers(1, 10**18), limits())
def test_a_debt_is_taken_from_what_the_bucket_can_hold(at, amount, limit):
    now, state = at
    image = BucketImage({"rpm": state}, 1, None, now // HOUR_MS)
    debt = Settlement("user-1", "gpt-4", configured(limit), {"rpm": amount})
    after = settled(image, debt, now).limits["rpm"]
    assert level_milli(after, now) == level_milli(state, now) - amount
    assert after.consumed_milli == state.consumed_milli + amount


@given(moment_and_state, st.integers(1, 10**18), limits())
def test_a_credit_raises_the_level_to_the_capacity_at_most(at, amount, limit):
    now, state = at
    image = BucketImage({"rpm": state}, 1, None, now // HOUR_MS)
    credit = Settlement("user-1", "gpt-4", configured(limit), {"rpm": -amount})
    after = settled(image, credit, now).limits["rpm"]
    assert level_milli(after, now) == min(
        state.rate.capacity_milli, level_milli(state, now) + amount
    )
    assert after.consumed_milli == state.consumed_milli - amount


@given(moments(), limits(), st.integers(1, 10**18), steps())
def test_what_is_charged_and_given_back_leaves_no_trace(now, limit, amount, elapsed):
    in_force = configured(limit)
    amount = min(amount, limit.capacity_milli)
    charge = Charge("user-1", "gpt-4", in_force, milli(in_force, amount))
    after = charged(None, charge, now)
    credit = Settlement("user-1", "gpt-4", in_force, {"rpm": -amount})
    back = settled(after, credit, now + elapsed)
    assert back.limits["rpm"].consumed_milli == 0
    assert level_milli(back.limits["rpm"], now + elapsed) == limit.capacity_milli


@given(moments(), limits(), st.integers(1, 10**18))
def test_an_absent_bucket_keeps_debts_and_drops_credits(now, limit, amount):
    in_force = configured(limit)
    credit = Settlement("user-1", "gpt-4", in_force, {"rpm": -amount})
    assert late_amounts([credit]) == {"rpm": (-amount, 0)}
    debt = Settlement("user-1", "gpt-4", in_force, {"rpm": amount})
    after = settled(None, debt, now)
    assert level_milli(after.limits["rpm"], now) == limit.capacity_milli - amount


@given(moment_and_image, st.data())
def test_mending_fills_up_to_the_capacity_and_keeps_consumption(at, data):
    now, image = at
    amounts = data.draw(st.dictionaries(st.sampled_from(sorted(image.limits)), tokens()))
    (topped, top_ups), (refilled, resets) = top_up(image, amounts, now), reset(image, now)
    added, forgiven = added_milli(top_ups), added_milli(resets)
    for name, state in image.limits.items():
        capacity = state.rate.capacity_milli
        before = level_milli(state, now)
        expected = before + amounts.get(name, 0) * 1000
        assert level_milli(topped.limits[name], now) == min(capacity, expected)
        assert level_milli(refilled.limits[name], now) == capacity
        assert added.get(name, 0) == min(capacity, expected) - before
        assert forgiven[name] == capacity - before
        assert take(topped.limits[name], capacity + 1, now + 10**15) is None
        assert topped.limits[name].consumed_milli == state.consumed_milli
        assert refilled.limits[name].consumed_milli == state.consumed_milli


# --- usage


@given(
    moments(),
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, HOUR_MS // 2, HOUR_MS, 5 * HOUR_MS, -HOUR_MS]),
            st.integers(-50, 100),
        ),
        max_size=20,
    ),
)
def test_rolling_counts_everything_once_and_in_its_hour(start, visits):
    in_force = configured(Limit("rpm", 10**15, 1, 1))
    now, hour = start, start // HOUR_MS
    image = full_bucket(in_force, now)
    counted, expected = {}, {}
    for step, amount in visits:
        now += step
        hour = max(hour, now // HOUR_MS)
        image, closed = roll(image, now)
        if closed is not None:
            assert closed.hour < hour
            assert closed.hour not in counted
            counted[closed.hour] = (closed.used["rpm"] // 1000, closed.admitted)
        if amount >= 0:
            charge = Charge("user-1", "gpt-4", in_force, milli(in_force, amount * 1000))
            image = charged(image, charge, now)
        else:
            credit = Settlement("user-1", "gpt-4", in_force, {"rpm": amount * 1000})
            image = settled(image, credit, now)
        used, events = expected.get(hour, (0, 0))
        expected[hour] = (used + amount, events + (amount >= 0))
    last = open_hour(image)
    counted[last.hour] = (last.used["rpm"] // 1000, last.admitted)
    counted = {at: each for at, each in counted.items() if any(each)}
    assert counted == {at: each for at, each in expected.items() if any(each)}


@given(moment_and_image, steps())
def test_rolling_changes_no_level(at, step):
    now, image = at
    rolled, _ = roll(image, now + step)
    assert rolled.limits.keys() == image.limits.keys()
    for name, state in image.limits.items():
        assert rolled.limits[name].balance_milli == state.balance_milli
        assert rolled.limits[name].consumed_milli == state.consumed_milli
    assert roll(rolled, now + step) == (rolled, None)


@given(moment_and_state, limits(), limits(), st.integers(1, 10**15))
def test_a_full_limit_of_a_call_is_forgotten_without_its_usage(at, limit, later, amount):
    now, state = at
    assume(state.rate not in (Rate.of(limit), Rate.of(later)))
    image = BucketImage({"rpm": state}, 3, None, now // HOUR_MS)
    amount = min(amount, limit.capacity)
    own = brought(limit, beside=in_force_of(image))
    own_charge = Charge("user-1", "gpt-4", own, milli(own, amount * 1000))
    after = charged(image, own_charge, now)
    alias = alias_of("rpm", Rate.of(limit))
    full = reaches_ms(after.limits[alias], limit.capacity_milli)
    changed = configured(later, version=4)

    assert alias in rebase(after, changed, full - 1).limits
    without = rebase(after, changed, full)
    assert set(without.limits) == {"rpm"}
    assert open_hour(without) == open_hour(after)
    assert without.limits["rpm"].consumed_milli == state.consumed_milli + amount * 1000
