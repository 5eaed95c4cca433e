"""What is written to a shard, for several callers at once or for one."""

import pytest

from tests.unit.dynamodb.stored import BUCKET_ID, IN_FORCE, NOW_MS
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.dynamodb.buckets.cache import FreshBucket
from zae_limiter.dynamodb.buckets.pending import BucketChange
from zae_limiter.dynamodb.buckets.planning import NothingToWrite, plan, rejected_alone
from zae_limiter.dynamodb.buckets.writes import WriteContext
from zae_limiter.dynamodb.items.bucket import EntityLink, StoredBucket
from zae_limiter.dynamodb.items.hours import HourState

SHARD = Shard(0, 2)
WHOLE_RATES = dict(zip(IN_FORCE.keys, IN_FORCE.rates, strict=True))
HOURS = HourState("0.x", NOW_MS // 3_600_000, None, {"rpm": 0, "tpm": 1}, False)
BUCKET = StoredBucket(
    full_bucket(IN_FORCE.at(SHARD), NOW_MS), "d", HOURS, 1, "op", SHARD, WHOLE_RATES
)
NOTHING_BACK = BucketChange(IN_FORCE, {}, is_charge=False, admitted=-1)
CREDIT = BucketChange(IN_FORCE, {"rpm": -1000}, is_charge=False)
CHARGE = BucketChange(IN_FORCE, {"rpm": 1000}, is_charge=True, admitted=1)


def planned(*parts):
    terms = WriteContext(BUCKET_ID.shard(0), NOW_MS, "mark")
    return plan(FreshBucket(BUCKET), parts, terms, EntityLink())


def test_a_charge_of_nothing_that_is_given_back_goes_with_the_credits():
    """They go before the charge, since only a write that takes nothing shows what runs over."""
    step = planned(NOTHING_BACK, CREDIT, CHARGE)
    assert step.applied_positions == [0, 1]
    assert step.net_milli == {"rpm": -1000}


def test_a_charge_of_nothing_that_is_given_back_goes_with_charges_where_nothing_is_credited():
    step = planned(NOTHING_BACK, CHARGE)
    assert step.applied_positions == [0, 1]
    assert step.net_milli == {"rpm": 1000}


def test_a_charge_of_nothing_can_be_given_back_by_itself():
    step = planned(NOTHING_BACK)
    assert step.applied_positions == [0]
    assert step.net_milli == {}


RATE = IN_FORCE.at(SHARD).rate_of("rpm")
TOO_MUCH = BucketChange(IN_FORCE, {"rpm": RATE.capacity_milli + 1}, is_charge=True, admitted=1)
ALL = BucketChange(IN_FORCE, {"rpm": RATE.capacity_milli}, is_charge=True, admitted=1)


@pytest.mark.parametrize(
    ("changes", "is_rejected"),
    [
        ([ALL], False),
        ([TOO_MUCH], True),
        ([TOO_MUCH._replace(until_ms=NOW_MS + 1)], False),  # a reservation is planned
        ([TOO_MUCH, CHARGE], False),
        ([CREDIT], False),
    ],
)
def test_a_charge_is_rejected_without_a_plan_only_if_its_plan_would_be_to_write_nothing(
    changes, is_rejected
):
    rejection = rejected_alone(FreshBucket(BUCKET), changes, NOW_MS)
    assert (rejection is not None) == is_rejected
    if rejection is not None:
        step = planned(*changes)
        assert isinstance(step, NothingToWrite)
        assert (rejection.image, rejection.shard) == (step.image, step.shard)
        assert rejection.now_ms == NOW_MS


def test_a_charge_under_other_limits_or_on_no_bucket_is_planned():
    other = BUCKET._replace(digest="other", image=BUCKET.image._replace(limits={}))
    assert rejected_alone(FreshBucket(other), [TOO_MUCH], NOW_MS) is None
    assert rejected_alone(FreshBucket(None), [TOO_MUCH], NOW_MS) is None
