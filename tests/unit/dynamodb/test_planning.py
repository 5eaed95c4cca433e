"""What is written to a shard, for several callers at once or for one."""

from dataclasses import replace

import pytest

from tests.support.changes import charge_of, settlement_of
from tests.unit.dynamodb.stored import BUCKET_ID, IN_FORCE, NOW_MS
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.shards.pressure import observed
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.items.buckets.cache import CachedBucket, FreshBucket
from zae_limiter.items.buckets.planning import NothingToWrite, plan
from zae_limiter.items.buckets.writes import WriteContext
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket
from zae_limiter.items.stored.usage.hours import ItemHours

SHARD = Shard(0, 2)
WHOLE_RATES = dict(zip(IN_FORCE.keys, IN_FORCE.rates, strict=True))
HOURS = ItemHours("0.x", NOW_MS // 3_600_000, None, {"rpm": 0, "tpm": 1}, False)
BUCKET = StoredBucket(
    full_bucket(IN_FORCE.at(SHARD), NOW_MS), "d", HOURS, 1, "op", SHARD, WHOLE_RATES
)
SEEN_BEFORE = CachedBucket(BUCKET, 0, {}, observed(None, SHARD, 0, NOW_MS))
NOTHING_BACK = settlement_of(IN_FORCE, {}, admitted=-1)
CREDIT = settlement_of(IN_FORCE, {"rpm": -1000})
CHARGE = charge_of(IN_FORCE, {"rpm": 1000})


def planned(*parts):
    terms = WriteContext(BUCKET_ID.shard(0), NOW_MS, "mark")
    return plan(FreshBucket(BUCKET), parts, terms, EntityLink())


def test_a_charge_of_nothing_that_is_given_back_goes_with_the_credits():
    """They go before the charge, since only a write that takes nothing shows what runs over."""
    step = planned(NOTHING_BACK, CREDIT, CHARGE)
    assert step.decision.carried == [0, 1]
    assert step.net_milli == {"rpm": -1000}


def test_a_charge_of_nothing_that_is_given_back_goes_with_charges_where_nothing_is_credited():
    step = planned(NOTHING_BACK, CHARGE)
    assert step.decision.carried == [0, 1]
    assert step.net_milli == {"rpm": 1000}


def test_a_charge_of_nothing_can_be_given_back_by_itself():
    step = planned(NOTHING_BACK)
    assert step.decision.carried == [0]
    assert step.net_milli == {}


RATE = IN_FORCE.at(SHARD).rate_of("rpm")
TOO_MUCH = charge_of(IN_FORCE, {"rpm": RATE.capacity_milli + 1})
ALL = charge_of(IN_FORCE, {"rpm": RATE.capacity_milli})


@pytest.mark.parametrize(
    ("changes", "positions"),
    [
        ([ALL], [0]),
        ([TOO_MUCH], None),
        ([replace(TOO_MUCH, until_ms=NOW_MS + 1)], None),
        ([TOO_MUCH, CHARGE], [1]),
        ([ALL, CHARGE], [0]),
        ([CREDIT], [0]),
    ],
)
def test_charges_that_do_not_fit_are_left_out_of_the_write(changes, positions):
    step = planned(*changes)
    if positions is None:
        assert step == NothingToWrite(BUCKET.image, SHARD)
    else:
        assert step.decision.carried == positions


def test_a_charge_that_seems_not_to_fit_is_sent_if_the_entry_may_be_outdated():
    context = WriteContext(BUCKET_ID.shard(0), NOW_MS, "mark")
    known = SEEN_BEFORE
    assert plan(known, [TOO_MUCH], context, EntityLink()).decision.carried == [0]
