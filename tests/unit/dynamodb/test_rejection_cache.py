"""A charge that asks for no more than one that was found to fit is not planned by itself."""

import pytest

from zae_limiter import Limit
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.clock import Deadline
from zae_limiter.dynamodb.buckets.cache import BucketCache
from zae_limiter.dynamodb.buckets.pending import BucketChange, PendingChange, Rejected
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.items.bucket import BucketId, StoredBucket
from zae_limiter.dynamodb.items.hours import HourState
from zae_limiter.dynamodb.rejection_cache import RejectionCache
from zae_limiter.models.config import ConfigSource

NOW_MS = 1_800_000_000_000
BUCKET_ID = BucketId("ns", "user-1", "gpt-4")
IN_FORCE = InForce(
    (Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100)), ConfigSource.SYSTEM, 1
)
HOURS = HourState("0.x", NOW_MS // 3_600_000, None, {"rpm": 0, "tpm": 1}, False)


def _charge(rpm: int, tpm: int) -> PendingChange:
    change = BucketChange(IN_FORCE, {"rpm": rpm * 1000, "tpm": tpm * 1000}, True, 1)
    return PendingChange(BUCKET_ID, change, lambda: NOW_MS, Deadline(2.0))


def _store(cache: BucketCache) -> None:
    bucket = StoredBucket(full_bucket(IN_FORCE, NOW_MS), "digest", HOURS)
    cache.store(BUCKET_ID.shard(0), bucket, NOW_MS)


@pytest.fixture
def cache() -> BucketCache:
    cache = BucketCache()
    _store(cache)
    return cache


@pytest.fixture
def rejections(cache: BucketCache) -> RejectionCache:
    rejections = RejectionCache(cache, Counters(), 1.0)
    first = _charge(1, 50)
    assert rejections.judge(first, NOW_MS) is None
    assert first.draft is not None
    return rejections


@pytest.mark.parametrize("amounts", [(1, 50), (1, 0), (0, 49)])
def test_a_charge_of_no_more_gets_no_draft(
    rejections: RejectionCache, amounts: tuple[int, int]
) -> None:
    pending = _charge(*amounts)
    assert rejections.judge(pending, NOW_MS + 1) is None
    assert pending.draft is None


@pytest.mark.parametrize("amounts", [(2, 50), (1, 51)])
def test_a_charge_of_more_is_planned(rejections: RejectionCache, amounts: tuple[int, int]) -> None:
    pending = _charge(*amounts)
    assert rejections.judge(pending, NOW_MS + 1) is None
    assert pending.draft is not None


@pytest.mark.parametrize("amounts", [(11, 0), (0, 101)])
def test_a_charge_that_does_not_fit_is_still_rejected(
    rejections: RejectionCache, amounts: tuple[int, int]
) -> None:
    assert isinstance(rejections.judge(_charge(*amounts), NOW_MS + 1), Rejected)


def test_an_earlier_stamp_is_planned(rejections: RejectionCache) -> None:
    pending = _charge(1, 50)
    assert rejections.judge(pending, NOW_MS - 1) is None
    assert pending.draft is not None


def test_another_entry_is_planned(rejections: RejectionCache, cache: BucketCache) -> None:
    _store(cache)
    pending = _charge(1, 50)
    assert rejections.judge(pending, NOW_MS) is None
    assert pending.draft is not None
