"""What a pause does to the writes of a bucket, and to what is decided without one."""

from dataclasses import replace

import pytest

from tests.support.changes import carried, charge_of, settlement_of
from tests.unit.dynamodb.stored import BUCKET_ID, IN_FORCE, NOW_MS
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.shards.spreading import gather
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Deadline
from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.items.buckets.cache import BucketCache, CachedBucket, FreshBucket
from zae_limiter.items.buckets.outcomes import Rejected
from zae_limiter.items.buckets.pauses import pause_write
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.buckets.planning import READ_FIRST, NothingToWrite, plan
from zae_limiter.items.buckets.writes import WriteContext
from zae_limiter.items.counters import Counters
from zae_limiter.items.rejection_cache import RejectionCache
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket, paused_digest
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.usage.hours import ItemHours
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import Limit

UNTIL_MS = NOW_MS + 30_000
HOURS = ItemHours("0.x", NOW_MS // 3_600_000, None, {"rpm": 0, "tpm": 1}, False)
CHARGE = charge_of(IN_FORCE, dict.fromkeys(IN_FORCE.keys, 1000))
DEBT = settlement_of(IN_FORCE, {"rpm": 1000})
KEY = Key("p", "s")


def paused(until_ms=UNTIL_MS, expires_ms=None):
    image = full_bucket(IN_FORCE, NOW_MS)._replace(paused_until_ms=until_ms, expires_ms=expires_ms)
    return StoredBucket(image, paused_digest("digest", until_ms), HOURS, 7, "1.op")


def planned(*changes, now_ms=NOW_MS, known=None):
    context = WriteContext(BUCKET_ID.shard(0), now_ms, "2.op")
    return plan(known or FreshBucket(paused()), changes, context, EntityLink())


def text_of(step):
    return body_of(step.request)


def test_a_charge_is_not_sent_by_a_client_that_knows_of_the_pause():
    assert isinstance(planned(CHARGE), NothingToWrite)
    assert isinstance(planned(CHARGE, CHARGE), NothingToWrite)
    seen = CachedBucket(paused(), NOW_MS - 60_000, {}, None)
    assert planned(CHARGE, known=seen) is READ_FIRST
    assert planned(CHARGE, DEBT, known=seen) is READ_FIRST


def test_a_settlement_is_written_under_the_digest_of_the_pause():
    step = planned(DEBT, CHARGE)
    assert step.decision.carried == [0]
    action = text_of(step)
    assert {"S": paused_digest("digest", UNTIL_MS)} in action["ExpressionAttributeValues"].values()
    assert "REMOVE" not in action["UpdateExpression"]


@pytest.mark.parametrize("change", [CHARGE, DEBT], ids=["charge", "debt"])
def test_the_first_write_after_the_end_removes_the_pause(change):
    action = text_of(planned(change, now_ms=UNTIL_MS))
    values = action["ExpressionAttributeValues"].values()
    assert {"S": paused_digest("digest", UNTIL_MS)} in values  # required
    assert {"S": "digest"} in values  # set
    [short] = [short for short, name in action["ExpressionAttributeNames"].items() if name == "nb"]
    assert action["UpdateExpression"].endswith(f"REMOVE {short}")


@pytest.mark.parametrize(("now_ms", "stays"), [(UNTIL_MS - 1, True), (UNTIL_MS, False)])
def test_other_limits_leave_a_pause_that_is_not_over(now_ms, stays):
    limits = InForce((Limit.per_minute("rpm", 7),), ConfigSource.ENTITY, 9)
    charge = charge_of(limits, {"rpm": 1000})
    step = planned(charge, now_ms=now_ms)
    assert step.structural
    action = body_of(step.request)
    digests = [value["S"] for value in action["ExpressionAttributeValues"].values() if "S" in value]
    assert sum(each.endswith(paused_digest("", UNTIL_MS)) for each in digests) == 1 + stays
    assert ("REMOVE" in action["UpdateExpression"]) != stays


def test_of_two_changes_only_the_settlement_is_taken_during_a_pause():
    assert carried([CHARGE, DEBT, CHARGE], paused().image, UNTIL_MS - 1) == [1]
    assert carried([CHARGE, DEBT, CHARGE], paused().image, UNTIL_MS) == [0, 1, 2]


def test_nothing_is_gathered_from_shards_of_which_one_is_paused():
    images = {
        shard: full_bucket(IN_FORCE.at(shard), NOW_MS) for shard in (Shard(0, 2), Shard(1, 2))
    }
    assert gather(images, {"rpm": 1000}, NOW_MS) is not None
    images[Shard(1, 2)] = images[Shard(1, 2)]._replace(paused_until_ms=UNTIL_MS)
    assert gather(images, {"rpm": 1000}, NOW_MS) is None


def test_it_is_written_once_and_two_ends_have_two_digests():
    assert pause_write(KEY, paused(), UNTIL_MS, NOW_MS) is None
    assert pause_write(KEY, paused(NOW_MS), None, NOW_MS) is None  # over: nothing to lift
    longer = body_of(pause_write(KEY, paused(), UNTIL_MS + 1, NOW_MS))
    digests = [value["S"] for value in longer["ExpressionAttributeValues"].values() if "S" in value]
    assert len({each for each in digests if each.startswith("digest!")}) == 2


@pytest.mark.parametrize(("expires_ms", "is_set"), [(NOW_MS + 5000, True), (UNTIL_MS, False)])
def test_the_bucket_outlives_its_pause_and_its_ttl_is_not_moved_back(expires_ms, is_set):
    action = body_of(pause_write(KEY, paused(None, expires_ms), UNTIL_MS, NOW_MS))
    values = action["ExpressionAttributeValues"].values()
    assert ({"N": str(UNTIL_MS // 1000)} in values) == is_set
    assert ({"N": str(expires_ms // 1000)} in values) == is_set  # it must be as it was seen


@pytest.mark.parametrize(
    ("seen_ms", "now_ms", "is_rejected"),
    [
        (NOW_MS, NOW_MS, True),
        (NOW_MS, NOW_MS + 999, True),
        (NOW_MS, NOW_MS + 1000, False),  # it may have been lifted
        (UNTIL_MS, UNTIL_MS - 1, False),
        (UNTIL_MS - 1, UNTIL_MS, False),  # it is over
    ],
)
def test_calls_are_rejected_without_asking_as_long_as_other_rejections_are(
    seen_ms, now_ms, is_rejected
):
    cache = BucketCache()
    cache.store(BUCKET_ID.shard(0), paused(), seen_ms)
    for until_ms in (None, UNTIL_MS + 60_000):  # one that waits is turned away, too
        change = replace(CHARGE, until_ms=until_ms)
        pending = PendingChange(BUCKET_ID, change, lambda: now_ms, Deadline(2.0))
        outcome = RejectionCache(cache, Counters(), 1.0).judge(pending, now_ms)
        assert isinstance(outcome, Rejected) == is_rejected
