"""Rejecting without a call the charges that the bucket cache shows cannot fit.

A failed condition is billed like a write, so asking an empty bucket again and again is expensive.
A bucket is not asked until its level can have come back by itself, for ``rejection_cache_ttl`` at
most: another client may have given tokens back, which this client has not seen.
"""

from __future__ import annotations

from enum import Enum

from zae_limiter.admission.fit import admits
from zae_limiter.items.buckets.cache import BucketCache, holds_limits
from zae_limiter.items.buckets.outcomes import Rejected
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.counters import Counters
from zae_limiter.items.sharding.known_shards import KnownShards, rejection


class Prospect(Enum):
    """The prospect of a charge that is not rejected without a call."""

    FITS = "the bucket as it was last seen holds the charge, or was never seen"
    DOUBTFUL = "the bucket as it was last seen does not hold the charge"


class RejectionCache:
    """Reject charges that the bucket cache shows cannot fit.

    Own writes update that cache, so they count at once.
    """

    def __init__(self, cache: BucketCache, counters: Counters, ttl_seconds: float) -> None:
        self._cache = cache
        self._counters = counters
        self._ttl_ms = int(ttl_seconds * 1000)

    def judge(self, pending: PendingChange, now_ms: int) -> Rejected | Prospect:
        """Judge a charge by the bucket as it was last seen.

        The charge is rejected only if every shard was seen a moment ago, with the limits in force.
        """
        change, entry = pending.change, self._cache.get(pending.shard_id)
        if (
            entry is not None
            and entry.bucket.shard.n == 1
            and holds_limits(entry.bucket, change.in_force)
        ):
            image = entry.bucket.image
            if admits(image, change, now_ms):
                return Prospect.FITS
            if pending.reads_first or not now_ms - self._ttl_ms < entry.at_ms <= now_ms:
                return Prospect.DOUBTFUL
            self._count()
            return Rejected(image, now_ms)
        shards = KnownShards.of(self._cache, pending.bucket_id)
        images = shards.images(change.in_force, now_ms)
        if shards.could_hold(images, change, now_ms):
            return Prospect.FITS
        if (
            pending.reads_first
            or not shards.were_seen(now_ms - self._ttl_ms, now_ms)
            or shards.with_other_limits(change.in_force)
        ):
            return Prospect.DOUBTFUL
        self._count()
        gathers = shards.should_gather(images, change)
        return rejection(images, change, now_ms, gathers=gathers)

    def _count(self) -> None:
        self._counters.rejected.add()
        self._counters.cached_rejections.add()
