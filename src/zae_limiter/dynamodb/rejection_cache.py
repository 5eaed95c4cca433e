"""Rejecting without a call what was seen not to fit a moment ago.

A failed condition is billed like a write, so asking an empty bucket again and again is expensive.
Until its level can have come back by itself it is not asked, for ``rejection_cache_ttl`` at most:
another client may have given tokens back, which this one has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.admission.image import is_paused
from zae_limiter.admission.moves import charge_moves
from zae_limiter.admission.reservation import bound_ms, reservation_moves
from zae_limiter.dynamodb.buckets.cache import BucketCache, CachedBucket, holds_limits
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

# A cache entry, and amounts that it was found to hold at a moment, in milliseconds. No NamedTuple:
# one is made for every charge.
_Fit = tuple[CachedBucket, Mapping[str, int], int]


def _covers(fit: _Fit, amounts_milli: Mapping[str, int], now_ms: int) -> bool:
    """Tell whether the entry must hold these amounts, too: its levels only rise with time."""
    _, fitting, from_ms = fit
    if now_ms < from_ms:
        return False
    return amounts_milli == fitting or all(
        amount <= fitting.get(key, -1) for key, amount in amounts_milli.items()
    )


class RejectionCache:
    """Own credits, resets and changes of limits show at once: they change the bucket cache."""

    def __init__(self, cache: BucketCache, counters: Counters, ttl_seconds: float) -> None:
        self._cache = cache
        self._counters = counters
        self._ttl_ms = int(ttl_seconds * 1000)
        self._last_fit: _Fit | None = None  # replaced as a whole: threads share it without a lock

    def judge(self, pending: PendingChange, now_ms: int) -> Rejected | None:
        """Reject a charge that cannot fit; otherwise leave its plan in ``pending.draft``.

        The question whether it fits is asked once: the write loop sends the draft as it is. A
        charge that comes while the bucket is being written gets no draft, if no more is asked than
        a charge before it: it joins a group, which is planned as a whole.
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
        if entry is None:
            return None
        bucket, in_force, amounts = entry.bucket, change.in_force, change.amounts_milli
        if bucket.digest not in in_force.digests and not holds_limits(bucket, in_force):
            return None
        image = bucket.image
        if is_paused(image, now_ms):
            return self._judge_paused(entry, now_ms)
        if change.until_ms is not None:
            return self._judge_reservation(pending, entry, change.until_ms, now_ms)
        last = self._last_fit
        if last is not None and last[0] is entry and _covers(last, amounts, now_ms):
            return None
        age_ms = now_ms - entry.at_ms
        is_fresh = 0 <= age_ms < self._ttl_ms
        if image.holds is not None:  # planned with the slots of other callers, without a draft
            fits = fits_alone(change, image, now_ms)
            return None if fits or not is_fresh else Rejected(image, now_ms)
        others = entry.others_milli_per_s
        moves, fits = charge_moves(image.limits, amounts, now_ms, age_ms, others, reject=is_fresh)
        if is_fresh and not fits:
            return Rejected(image, now_ms)
        if fits:
            self._last_fit = entry, amounts, now_ms
        pending.draft = ChargeDraft(cached=entry, moves=moves, now_ms=now_ms, fits=fits)
        return None

    def _judge_paused(self, entry: CachedBucket, now_ms: int) -> Rejected | None:
        """Reject during a pause; without a draft the bucket is read: the pause may be lifted."""
        if 0 <= now_ms - entry.at_ms < self._ttl_ms:
            return Rejected(entry.bucket.image, now_ms)
        return None

    def _judge_reservation(
        self, pending: PendingChange, entry: CachedBucket, until_ms: int, now_ms: int
    ) -> Rejected | None:
        """Judge a caller that waits by the moment up to which it does."""
        image, age_ms = entry.bucket.image, now_ms - entry.at_ms
        moves, fits = reservation_moves(
            image.limits,
            pending.change.amounts_milli,
            now_ms,
            by_ms=bound_ms(until_ms, now_ms),
            age_ms=age_ms,
            others_milli_per_s=entry.others_milli_per_s,
        )
        if not fits and 0 <= age_ms < self._ttl_ms:
            return Rejected(image, now_ms)
        pending.draft = ChargeDraft(entry, moves, now_ms, fits)
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
