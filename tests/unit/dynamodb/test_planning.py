"""What is written to a shard, for several callers at once or for one."""

from dataclasses import replace

import pytest

from tests.unit.dynamodb.stored import BUCKET_ID, IN_FORCE, NOW_MS
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.shards.pressure import observed
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.dynamodb.expressions import text as text_of
from zae_limiter.items.buckets import planning
from zae_limiter.items.buckets.cache import CachedBucket, FreshBucket
from zae_limiter.items.buckets.changes import BucketChange
from zae_limiter.items.buckets.planning import NothingToWrite, plan
from zae_limiter.items.buckets.writes import WriteContext
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket
from zae_limiter.items.stored.usage.hours import HourState

SHARD = Shard(0, 2)
WHOLE_RATES = dict(zip(IN_FORCE.keys, IN_FORCE.rates, strict=True))
HOURS = HourState("0.x", NOW_MS // 3_600_000, None, {"rpm": 0, "tpm": 1}, False)
BUCKET = StoredBucket(
    full_bucket(IN_FORCE.at(SHARD), NOW_MS), "d", HOURS, 1, "op", SHARD, WHOLE_RATES
)
SEEN_BEFORE = CachedBucket(BUCKET, 0, {}, observed(None, SHARD, 0, NOW_MS))
NOTHING_BACK = BucketChange(IN_FORCE, {}, is_charge=False, admitted=-1)
CREDIT = BucketChange(IN_FORCE, {"rpm": -1000}, is_charge=False)
CHARGE = BucketChange(IN_FORCE, {"rpm": 1000}, is_charge=True, admitted=1)


def planned(*parts):
    terms = WriteContext(BUCKET_ID.shard(0), NOW_MS, "mark")
    return plan(FreshBucket(BUCKET), parts, terms, EntityLink())


def test_a_charge_of_nothing_that_is_given_back_goes_with_the_credits():
    """They go before the charge, since only a write that takes nothing shows what runs over."""
    step = planned(NOTHING_BACK, CREDIT, CHARGE)
    assert step.positions == [0, 1]
    assert step.net_milli == {"rpm": -1000}


def test_a_charge_of_nothing_that_is_given_back_goes_with_charges_where_nothing_is_credited():
    step = planned(NOTHING_BACK, CHARGE)
    assert step.positions == [0, 1]
    assert step.net_milli == {"rpm": 1000}


def test_a_charge_of_nothing_can_be_given_back_by_itself():
    step = planned(NOTHING_BACK)
    assert step.positions == [0]
    assert step.net_milli == {}


RATE = IN_FORCE.at(SHARD).rate_of("rpm")
TOO_MUCH = BucketChange(IN_FORCE, {"rpm": RATE.capacity_milli + 1}, is_charge=True, admitted=1)
ALL = BucketChange(IN_FORCE, {"rpm": RATE.capacity_milli}, is_charge=True, admitted=1)


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
        assert step.positions == positions


def test_a_charge_that_seems_not_to_fit_is_sent_if_the_entry_may_be_outdated():
    context = WriteContext(BUCKET_ID.shard(0), NOW_MS, "mark")
    known = SEEN_BEFORE
    assert plan(known, [TOO_MUCH], context, EntityLink()).positions == [0]


@pytest.mark.parametrize("amounts", [{"rpm": 1000}, {"rpm": 0}, TOO_MUCH.amounts_milli])
@pytest.mark.parametrize("through_child", [frozenset(), frozenset({"rpm"})])
@pytest.mark.parametrize("now_ms", [NOW_MS, NOW_MS + 700, NOW_MS + 3_600_000])
def test_the_short_cut_plans_the_write_of_the_general_path(amounts, through_child, now_ms):
    change = BucketChange(
        IN_FORCE, amounts, is_charge=True, admitted=1, through_child=through_child
    )
    context = WriteContext(BUCKET_ID.shard(0), now_ms, "mark", usage_ms=86_400_000)
    known, in_force = SEEN_BEFORE, IN_FORCE.at(SHARD)
    short, general = (
        planning._usual_charge(known, BUCKET, change, in_force, context),  # noqa: SLF001
        planning._with_bucket(known, BUCKET, [change], in_force, context),  # noqa: SLF001
    )
    assert text_of(short.request, "table") == text_of(general.request, "table")
    assert (short.positions, short.net_milli) == (general.positions, general.net_milli)
    assert plan(known, [change], context, EntityLink()).net_milli == general.net_milli
