"""The prospect of a charge, from the bucket as it was last seen."""

import pytest

from tests.support.changes import charge_of
from zae_limiter import Limit
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.clock import Deadline
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.outcomes import Rejected
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.counters import Counters
from zae_limiter.items.rejection_cache import Prospect, RejectionCache
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.items.stored.usage.hours import ItemHours
from zae_limiter.models.config import ConfigSource

NOW_MS = 1_800_000_000_000
BUCKET_ID = BucketId("ns", "user-1", "gpt-4")
IN_FORCE = InForce(
    (Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100)), ConfigSource.SYSTEM, 1
)
HOURS = ItemHours("0.x", NOW_MS // 3_600_000, None, {"rpm": 0, "tpm": 1}, False)


def _charge(rpm: int, tpm: int) -> PendingChange:
    change = charge_of(IN_FORCE, {"rpm": rpm * 1000, "tpm": tpm * 1000})
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
    return RejectionCache(cache, Counters(), 1.0)


@pytest.mark.parametrize("amounts", [(1, 50), (10, 100), (0, 0)])
def test_a_charge_that_the_bucket_holds_fits(
    rejections: RejectionCache, amounts: tuple[int, int]
) -> None:
    assert rejections.judge(_charge(*amounts), NOW_MS + 1) is Prospect.FITS


@pytest.mark.parametrize("amounts", [(11, 0), (0, 101)])
def test_a_charge_that_does_not_fit_is_rejected(
    rejections: RejectionCache, amounts: tuple[int, int]
) -> None:
    assert isinstance(rejections.judge(_charge(*amounts), NOW_MS + 1), Rejected)


@pytest.mark.parametrize("now_ms", [NOW_MS - 1, NOW_MS + 1000])
def test_a_charge_is_doubtful_if_the_bucket_was_not_seen_lately(
    rejections: RejectionCache, now_ms: int
) -> None:
    assert rejections.judge(_charge(11, 0), now_ms) is Prospect.DOUBTFUL


def test_a_charge_of_a_caller_that_reads_first_is_not_rejected(
    rejections: RejectionCache,
) -> None:
    pending = _charge(11, 0)
    pending.reads_first = True
    assert rejections.judge(pending, NOW_MS) is Prospect.DOUBTFUL


def test_a_bucket_that_was_never_seen_is_assumed_full() -> None:
    rejections = RejectionCache(BucketCache(), Counters(), 1.0)
    assert rejections.judge(_charge(10, 100), NOW_MS) is Prospect.FITS
    assert rejections.judge(_charge(11, 0), NOW_MS) is Prospect.DOUBTFUL
