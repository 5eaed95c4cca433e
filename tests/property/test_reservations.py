"""A reservation is let through exactly if its tokens will have accrued by the deadline.

``WRONG_RULES`` leave one guard out: the cases must tell each of them from the rule.
"""

import random
from dataclasses import replace

import pytest

from tests.property.taking import fits_limit, take
from tests.support.changes import carried, charge_of, sent_moves, settled
from zae_limiter.admission.fit import admits
from zae_limiter.admission.image import BucketImage, LimitState, Rate, level_milli
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.request import Settlement
from zae_limiter.admission.reservation import (
    HORIZON_MS,
    bound_ms,
    next_try_ms,
    reserved,
)
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.bucket import EPOCH_MS
from zae_limiter.items.buckets.outcomes import applied_outcomes
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.items.stored.usage.hours import ItemHours
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus
from zae_limiter.waiting.line import Sleeper, WaitingLine

CASES = 3000
NOW_MS = EPOCH_MS + 200_000_000_000
IN_FORCE = InForce((Limit.custom("x", 1, 1, 1),), ConfigSource.SYSTEM, 1)


def let_through(moves, balances):
    return all(
        (move.low is None or balances[move.key] >= move.low)
        and (move.high is None or balances[move.key] <= move.high)
        for move in moves
    )


def rate_of(chance):
    return Rate(
        chance.randint(1, 50) * 1000, chance.randint(1, 90) * 1000, chance.choice([1000, 7000])
    )


def state_of(chance, rate):
    """A limit at any level: in debt, in between, or overflowed."""
    level = chance.randint(-2 * rate.capacity_milli, rate.capacity_milli + 5000)
    return LimitState(level - accrued_at(rate, NOW_MS), rate)


def by_hand(state, amount, by_ms):
    """Whether the amount is there by the deadline, if the bucket is charged at the stamp."""
    rate, level = state.rate, level_milli(state, NOW_MS)
    if amount == 0:
        return level >= 0
    ahead = accrued_at(rate, by_ms) - accrued_at(rate, NOW_MS)
    return amount <= rate.capacity_milli and level + ahead >= amount


def accrued_at(rate, moment_ms):
    return (moment_ms - EPOCH_MS) * rate.refill_milli // rate.period_ms


def cases():
    chance = random.Random(11)
    for _ in range(CASES):
        rate = rate_of(chance)
        amount = chance.choice([0, chance.randint(1, 2 * rate.capacity_milli)])
        yield chance, state_of(chance, rate), amount, NOW_MS + chance.randint(0, 20_000)


def test_what_fits_is_what_will_have_accrued():
    check_rule(by_hand)


def check_rule(rule):
    for _, state, amount, by_ms in cases():
        assert fits_limit(state, amount, NOW_MS, by_ms) == rule(state, amount, by_ms)


def without_the_capacity(state, amount, by_ms):
    """More than the capacity is waited for."""
    ahead = accrued_at(state.rate, by_ms) - accrued_at(state.rate, NOW_MS)
    return by_hand(state, amount, by_ms) or (
        amount > 0 and level_milli(state, NOW_MS) + ahead >= amount
    )


def without_unnamed_limits(state, amount, by_ms):
    """A limit that is not named is reserved over."""
    return amount == 0 or by_hand(state, amount, by_ms)


def without_the_deadline(state, amount, by_ms):
    """Callers that wait are judged at the stamp."""
    return by_hand(state, amount, NOW_MS)


WRONG_RULES = [without_the_capacity, without_unnamed_limits, without_the_deadline]


@pytest.mark.parametrize("rule", WRONG_RULES)
def test_a_wrong_rule_is_found(rule):
    with pytest.raises(AssertionError):
        check_rule(rule)


def test_a_reservation_leaves_the_balance_of_a_charge():
    for _, state, amount, by_ms in cases():
        after = take(state, amount, NOW_MS, by_ms)
        assert (after is not None) == by_hand(state, amount, by_ms)
        at_once = take(state, amount, NOW_MS)
        if at_once is not None:
            assert after == at_once
        elif after is not None:
            due_ms = reserved(image_of(after), {"x": amount}, (1, 0), {}).due_ms
            assert NOW_MS < due_ms <= by_ms
            assert level_milli(after, due_ms) >= 0 > level_milli(after, due_ms - 1)


def image_of(state, writes=1):
    return BucketImage({"x": state}, 1, None, 0, writes=writes)


def test_the_store_lets_through_exactly_the_charges_that_fit():
    for chance, seen, amount, by_ms in cases():
        stored = state_of(chance, seen.rate)
        for known in (seen, stored):
            charge = charge_of(IN_FORCE, {"x": amount}, until_ms=by_ms)
            fits = admits(image_of(known), charge, NOW_MS)
            moves = sent_moves([charge], image_of(known), NOW_MS)
            if let_through(moves, {"x": stored.balance_milli}):
                assert by_hand(stored, amount, by_ms)
                after = take(stored, amount, NOW_MS, by_ms)
                assert moves[0].applied(stored.balance_milli) == after.balance_milli
            else:  # the branch was guessed wrong, or it does not fit
                assert known is not stored or not fits


def test_a_group_is_let_through_if_each_fits_behind_the_others():
    check_groups(one_by_one)


def one_by_one(state, changes):
    """Reserve all changes of a group in order; None if one of them does not fit."""
    for change in changes:
        if state is not None:
            state = take(state, change.amounts_milli["x"], NOW_MS, change.until_ms)
    return state


def only_the_last_is_bounded(state, changes):
    """Charge a group as one amount with the bound of the last change."""
    total = sum(change.amounts_milli["x"] for change in changes)
    return take(state, total, NOW_MS, changes[-1].until_ms)


def nothing_is_charged_before(state, changes):
    """Look whether each change of a group fits alone."""
    if any(one_by_one(state, [change]) is None for change in changes):
        return None
    total = sum(change.amounts_milli["x"] for change in changes)
    at_once = take(state, 0, NOW_MS, None) or state
    return replace(at_once, balance_milli=at_once.balance_milli - total)


@pytest.mark.parametrize("rule", [only_the_last_is_bounded, nothing_is_charged_before])
def test_a_wrong_rule_of_groups_is_found(rule):
    with pytest.raises(AssertionError):
        check_groups(rule)


def check_groups(rule):
    chance = random.Random(12)
    for _ in range(CASES // 2):
        rate = rate_of(chance)
        seen, stored = state_of(chance, rate), state_of(chance, rate)
        changes = [
            charge_of(
                IN_FORCE,
                {"x": chance.choice([0, chance.randint(1, rate.capacity_milli)])},
                until_ms=chance.choice([None, NOW_MS + chance.randint(0, 20_000)]),
            )
            for _ in range(chance.randint(1, 5))
        ]
        taken = [changes[at] for at in carried(changes, image_of(seen), NOW_MS)]
        if not taken:
            continue
        for known in (seen, stored):
            (move,) = sent_moves(taken, image_of(known), NOW_MS)
            expected = rule(stored, taken)
            if let_through([move], {"x": stored.balance_milli}):
                assert expected is not None
                assert move.applied(stored.balance_milli) == expected.balance_milli
            elif known is stored:
                assert expected is None


def test_nothing_is_reserved_beyond_the_horizon():
    assert bound_ms(None, 1000) == 1000
    assert bound_ms(500, 1000) == 1000
    assert bound_ms(5000, 1000) == 5000
    assert bound_ms(10**9, 1000) == 1000 + HORIZON_MS


def status(requested, available, wait_s):
    limit = Limit.per_second("x", 10)
    return LimitStatus("u", "api", "x", limit, available, requested, wait_s > 0, wait_s)


@pytest.mark.parametrize(
    ("waits", "expected_ms"),
    [
        ([0.0], 0),
        ([20.0], 20_000),  # within the bound, and not reserved over
        ([70.0], 10_000),  # beyond the horizon: when that has come near
        ([70.0, 20.0], 20_000),
        ([100.001], None),
        ([float("inf")], None),
    ],
)
def test_a_rejected_caller_asks_again_when_it_may_fit(waits, expected_ms):
    listed = [status(1, 0, wait_s) for wait_s in waits]
    again_ms = next_try_ms(listed, 1000, 1000 + HORIZON_MS, 1000 + 100_000)
    assert again_ms == (None if expected_ms is None else 1000 + expected_ms)


@pytest.mark.parametrize(
    ("wait_s", "paused_s", "expected_ms"),
    [
        (20.0, 20.0, 20_000),
        (90.0, 90.0, 90_000),  # not when the horizon has come near: it would be turned away again
        (50.0, 20.0, 20_000),  # from then on it can be reserved
        (95.0, 20.0, 35_000),
        (100.001, 20.0, None),
    ],
)
def test_a_paused_bucket_is_asked_when_the_pause_is_over(wait_s, paused_s, expected_ms):
    listed = [replace(status(1, 0, wait_s), paused_seconds=paused_s)]
    again_ms = next_try_ms(listed, 1000, 1000 + HORIZON_MS, 1000 + 100_000)
    assert again_ms == (None if expected_ms is None else 1000 + expected_ms)


def move_all(line):
    while line.has_news:
        line.move_up(NOW_MS)


def test_an_image_with_other_limits_or_from_before_moves_no_due():
    rate = Rate(10_000, 10_000, 1000)
    state = LimitState(-accrued_at(rate, NOW_MS) - 5000, rate)
    line = WaitingLine(now_s=lambda: 0.0)
    sleeper = Sleeper("x", reserved(image_of(state, writes=7), {"x": 1000}, (7, 0), {}))
    line.add(sleeper)
    due_ms = sleeper.due_ms
    richer = replace(state, balance_milli=state.balance_milli + 3000)
    line.note_image(image_of(richer, writes=6))
    move_all(line)
    line.note_image(image_of(replace(richer, rate=Rate(20_000, 10_000, 1000)), writes=8))
    move_all(line)
    assert sleeper.due_ms == due_ms == NOW_MS + 500
    line.note_image(image_of(richer, writes=8))
    move_all(line)
    assert sleeper.due_ms == NOW_MS + 200


def test_a_forfeited_amount_is_neither_counted_nor_given_back():
    in_force = InForce((Limit.custom("x", 10, 10, 1),), ConfigSource.SYSTEM, 1)
    state = LimitState(-accrued_at(in_force.rates[0], NOW_MS), in_force.rates[0], 7000)
    before = image_of(state)._replace(admitted=3)
    lost = Settlement("u", "api", in_force, {"x": -2000}, admitted=-1, forfeits=True)
    after = settled(before, lost, NOW_MS)
    assert after.limits["x"] == replace(state, consumed_milli=5000)
    assert after.admitted == 2
    given = settled(before, replace(lost, forfeits=False), NOW_MS)
    assert given.limits["x"].balance_milli == state.balance_milli + 2000


def test_only_callers_behind_a_cancelled_one_move_up():
    rate = Rate(10_000, 10_000, 1000)
    line, sleepers = WaitingLine(now_s=lambda: 0.0), []
    for place in range(1, 4):
        state = LimitState(-accrued_at(rate, NOW_MS) - 2000 * place, rate)
        image = image_of(state, writes=place)
        sleepers.append(Sleeper("x", reserved(image, {"x": 2000}, (place, 0), {})))
        line.add(sleepers[-1])
    assert [each.due_ms - NOW_MS for each in sleepers] == [200, 400, 600]
    line.remove(sleepers[1])
    line.note_credit(sleepers[1].reservation, 1)
    move_all(line)
    assert [each.due_ms - NOW_MS for each in sleepers] == [200, 400, 400]


def test_reservations_of_one_write_are_due_in_order():
    in_force = InForce((Limit.custom("x", 20, 20, 1),), ConfigSource.SYSTEM, 1)
    rate = Rate(10_000, 10_000, 1000)  # of one half
    state = LimitState(-accrued_at(rate, NOW_MS) - 3000, rate)
    hours = ItemHours("1.x", NOW_MS // 3_600_000, None, {"x": 0}, False)
    bucket = StoredBucket(image_of(state), "digest", hours, shard=Shard(1, 2))
    charge = charge_of(in_force, {"x": 1000})
    waiting = replace(charge, until_ms=NOW_MS + 5000)
    at_once, *outcomes = applied_outcomes([charge, waiting, waiting, waiting], bucket, NOW_MS)
    assert not at_once.is_short
    assert at_once.reservation is None
    assert not any(each.is_short for each in outcomes)
    assert [each.reservation.due_ms - NOW_MS for each in outcomes] == [100, 200, 300]
    for each in outcomes:  # what is left for a caller when it goes on
        own = each.reservation.image_as_of_it().limits["x"]
        assert level_milli(own, each.reservation.due_ms) == 0
