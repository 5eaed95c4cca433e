"""What an item shows of a write that others have followed, and what it does not."""

from dataclasses import replace

import pytest

from tests.support.changes import SHADOW, charge_of, settlement_of
from tests.unit.dynamodb.stored import IN_FORCE, NOW_MS, bucket_of
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.decide import Decision
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.items.buckets.outcomes import Applied, Rejected, outcomes_behind_others
from zae_limiter.store_errors import NoAnswer

OTHERS = InForce((Limit.per_minute("rpm", 99),), ConfigSource.SYSTEM, 1)
CHARGE = charge_of(IN_FORCE, {"rpm": 1000})
DOUBT = NoAnswer("hidden")


def outcomes(changes, positions, bucket):
    decision = Decision(bucket.image, changes, NOW_MS, None)
    for position in positions:
        (decision.take if changes[position].must_fit else decision.enter)(position)
    return outcomes_behind_others(decision.finish(), bucket, NOW_MS, DOUBT)


def test_a_charge_and_a_refund_of_a_whole_bucket_are_known_to_be_made():
    refund = settlement_of(IN_FORCE, {"rpm": -1000})
    bucket = bucket_of()
    assert outcomes([CHARGE, refund], [0, 1], bucket) == [Applied(bucket.image)] * 2


@pytest.mark.parametrize(
    ("change", "shard"),
    [
        (replace(CHARGE, until_ms=NOW_MS + 1000), Shard(0, 1)),
        (replace(CHARGE, switch=SHADOW), Shard(0, 1)),
        (replace(CHARGE, in_force=OTHERS), Shard(0, 1)),
        (CHARGE, Shard(1, 2)),
    ],
    ids=["a reservation", "shadow mode", "other limits", "a shard"],
)
def test_what_depends_on_the_moment_of_the_write_is_unknown(change, shard):
    (outcome,) = outcomes([change], [0], bucket_of(shard))
    assert isinstance(outcome, NoAnswer)
    assert outcome is not DOUBT


def test_callers_of_one_write_are_told_apart_and_those_without_it_stay_open():
    waits = replace(CHARGE, until_ms=NOW_MS + 1000)
    too_much = replace(CHARGE, amounts_milli={"rpm": 2**60})
    bucket = bucket_of()
    made, hidden, rejected, still_open = outcomes([CHARGE, waits, too_much, CHARGE], [0, 1], bucket)
    assert made == Applied(bucket.image)
    assert isinstance(hidden, NoAnswer)
    assert isinstance(rejected, Rejected)
    assert still_open is None
