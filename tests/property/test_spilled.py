"""What a shard could not hold of several credits in one write is handed on once."""

from hypothesis import given
from hypothesis import strategies as st

from tests.property.shard_strategies import state_at
from tests.property.strategies import levels, limits, moments
from tests.support.changes import charge_of, settlement_of
from zae_limiter import ConfigSource
from zae_limiter.admission.image import BucketImage, level_milli
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.shards.tree import WHOLE, Shard, effective
from zae_limiter.items.buckets.outcomes import applied_outcomes
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.items.stored.usage.hours import ItemHours

NAMES = ("rpm", "tpm")
HOURS = ItemHours("0.x", 0, None, {"rpm": 0, "tpm": 1}, False)


@st.composite
def writes(draw, shards):
    """A moment, a shard after a write, how far each limit has run over, the parts of the write."""
    now_ms, shard = draw(moments()), draw(shards)
    in_force = InForce(tuple(draw(limits(name)) for name in NAMES), ConfigSource.SYSTEM, 1)
    own = {name: effective(in_force.rate_of(name), shard) for name in NAMES}
    reached = {name: draw(after_credits(rate)) for name, rate in own.items()}
    over = {name: max(0, reached[name] - own[name].capacity_milli) for name in NAMES}
    held = {name: state_at(own[name], reached[name], now_ms) for name in NAMES}
    bucket = StoredBucket(BucketImage(held, 1, None, 0), "digest", HOURS, shard=shard)
    kinds = draw(st.lists(st.sampled_from(["credit", "credit", "debt", "charge"]), min_size=1))
    parts = [
        (charge_of if kind == "charge" else settlement_of)(in_force, draw(amounts(own, kind)))
        for kind in kinds
    ]
    return now_ms, bucket, over, parts


def after_credits(rate):
    """In any condition, and often just a little too full."""
    capacity = rate.capacity_milli
    return levels(rate) | st.integers(capacity + 1, capacity + 1 + capacity // 4)


@st.composite
def amounts(draw, rates, kind):
    """Of a charge all limits; else some, owed or (negative) given back."""
    names = NAMES if kind == "charge" else draw(st.sets(st.sampled_from(NAMES)))
    sign = -1 if kind == "credit" else 1
    return {name: sign * draw(st.integers(0, rates[name].capacity_milli)) for name in names}


shards = st.sampled_from([Shard(0, 2), Shard(1, 2), Shard(5, 32)])


@given(writes(shards))
def test_all_parts_spill_the_surplus_and_no_more(case):
    now_ms, bucket, over, parts = case
    outcomes = applied_outcomes(parts, bucket, now_ms)
    assert len(outcomes) == len(parts)
    for name in NAMES:
        given_back = sum(
            max(0, -part.amounts_milli.get(name, 0)) for part in parts if not part.is_charge
        )
        spilled = sum((each.spilled_milli or {}).get(name, 0) for each in outcomes)
        assert spilled == min(over[name], given_back)


@given(writes(shards))
def test_no_change_hands_on_more_than_it_gave(case):
    now_ms, bucket, _, parts = case
    for part, outcome in zip(parts, applied_outcomes(parts, bucket, now_ms), strict=True):
        assert not (part.is_charge and outcome.spilled_milli)
        for name, spilled in (outcome.spilled_milli or {}).items():
            assert 0 < spilled <= -part.amounts_milli[name]


@given(writes(shards))
def test_one_of_the_debts_has_the_shard_repaid_and_no_charge_does(case):
    now_ms, bucket, _, parts = case
    owed = {name for name in NAMES if level_milli(bucket.image.limits[name], now_ms) < 0}
    responsible = [
        not part.is_charge and any(part.amounts_milli.get(name, 0) > 0 for name in owed)
        for part in parts
    ]
    told = [each.is_short for each in applied_outcomes(parts, bucket, now_ms)]
    assert sum(told) == any(responsible)
    assert not any(told) or told.index(True) == responsible.index(True)


@given(writes(st.just(WHOLE)))
def test_a_bucket_in_one_item_cuts_off_and_owes_by_itself(case):
    now_ms, bucket, _, parts = case
    for outcome in applied_outcomes(parts, bucket, now_ms):
        assert outcome.image == bucket.image
        assert not outcome.spilled_milli
        assert not outcome.is_short
