"""What is written to a shard for several callers at once."""

from tests.unit.dynamodb.stored import IN_FORCE, NOW_MS, PLACE
from zae_limiter.admission.rebase import fresh
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.dynamodb.part import Part
from zae_limiter.dynamodb.planning import plan
from zae_limiter.dynamodb.view import Read
from zae_limiter.dynamodb.writes import Terms
from zae_limiter.records.dynamodb.bucket_item import Family, StoredBucket

SHARD = Shard(0, 2)
WHOLE_RATES = dict(zip(IN_FORCE.keys, IN_FORCE.rates, strict=True))
BUCKET = StoredBucket(fresh(IN_FORCE.at(SHARD), NOW_MS), "d", 1, "op", SHARD, WHOLE_RATES)
NOTHING_BACK = Part(IN_FORCE, {}, is_charge=False, admitted=-1)
CREDIT = Part(IN_FORCE, {"rpm": -1000}, is_charge=False)
CHARGE = Part(IN_FORCE, {"rpm": 1000}, is_charge=True, admitted=1)


def planned(*parts):
    terms = Terms((*PLACE, 0), NOW_MS, "mark")
    return plan(Read(BUCKET), parts, terms, Family())


def test_a_charge_of_nothing_that_is_given_back_goes_with_the_credits():
    """They go before the charge, since only a write that takes nothing shows what runs over."""
    step = planned(NOTHING_BACK, CREDIT, CHARGE)
    assert step.taken == [0, 1]
    assert step.net_milli == {"rpm": -1000}


def test_a_charge_of_nothing_that_is_given_back_goes_with_charges_where_nothing_is_credited():
    step = planned(NOTHING_BACK, CHARGE)
    assert step.taken == [0, 1]
    assert step.net_milli == {"rpm": 1000}


def test_a_charge_of_nothing_can_be_given_back_by_itself():
    step = planned(NOTHING_BACK)
    assert step.taken == [0]
    assert step.net_milli == {}
