"""Rejecting without a call what was seen not to fit a moment ago.

A failed condition is billed like a write, so asking an empty bucket again and again is expensive.
Until its level can have come back by itself it is not asked, for ``rejection_cache_ttl`` at most:
another client may have given tokens back, which this one has not seen.
"""

from __future__ import annotations

from zae_limiter.admission.moves import charge_moves
from zae_limiter.dynamodb.buckets.cache import BucketCache, holds_limits
from zae_limiter.dynamodb.buckets.pending import (
    ChargeDraft,
    PendingChange,
    Rejected,
    fits_alone,
)
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.sharding.known_shards import (
    Images,
    KnownShards,
    fits_together,
    rejection,
)


class RejectionCache:
    """Own credits, resets and changes of limits show at once: they change the bucket cache."""

    def __init__(self, cache: BucketCache, counters: Counters, ttl_seconds: float) -> None:
        self._cache = cache
        self._counters = counters
        self._ttl_ms = int(ttl_seconds * 1000)

    def judge(self, pending: PendingChange, now_ms: int) -> Rejected | None:
        """Reject a charge that cannot fit; otherwise leave its plan in ``pending.draft``.

        The question whether it fits is asked once: the write loop sends the draft as it is.
        """
        if pending.look_first:
            return None
        if self._cache.layout(pending.bucket_id) is not None:
            outcome = self._judge_shards(pending, now_ms) if self._ttl_ms else None
        else:
            outcome = self._judge_bucket(pending, now_ms)
        if outcome is not None:
            self._counters.add(charges=1, rejected=1, cached_rejections=1)
        return outcome

    def _judge_bucket(self, pending: PendingChange, now_ms: int) -> Rejected | None:
        entry, change = self._cache.get(pending.shard_id), pending.change
        if entry is None or not holds_limits(entry.bucket, change.in_force):
            return None
        image, age_ms = entry.bucket.image, now_ms - entry.at_ms
        moves, fits = charge_moves(
            image.limits, change.amounts_milli, now_ms, age_ms, entry.others_milli_per_s
        )
        if not fits and 0 <= age_ms < self._ttl_ms:
            return Rejected(image, now_ms)
        pending.draft = ChargeDraft(entry, moves, now_ms)
        return None

    def _judge_shards(self, pending: PendingChange, now_ms: int) -> Rejected | None:
        """Reject if every shard was seen, and neither one alone nor all together hold it."""
        change, shards = pending.change, KnownShards.of(self._cache, pending.bucket_id)
        images: Images = {}
        for shard, entry in shards.entries.items():
            if entry is None or not 0 <= now_ms - entry.at_ms < self._ttl_ms:
                return None
            bucket, in_force = entry.bucket, change.in_force.at(shard)
            images[shard] = bucket.image
            if not holds_limits(bucket, in_force) or fits_alone(change, bucket.image, now_ms):
                return None
        gathers = shards.should_gather(images, change)
        if gathers and fits_together(images, change, now_ms):
            return None
        return rejection(images, change, now_ms, gathers=gathers)
