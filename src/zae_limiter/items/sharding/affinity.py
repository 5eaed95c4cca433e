"""Which shard of a bucket this process sends its next write to."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping

from zae_limiter.admission.image import BucketImage, level_milli
from zae_limiter.admission.request import BucketChange
from zae_limiter.admission.shards.tree import Shard, draw
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.locks import SignalSafeLock

STAY_S = 0.05  # a few round trips: long enough for a group to form
MAX_BUCKETS = 10_000  # split buckets in use at a time; bounds memory


class ShardAffinity:
    """Stay with one shard for a moment, so that concurrent callers share a write.

    Without that, a crowd would be spread over all shards, and each of them would be written to as
    often as the one bucket before. Over a second or more, all shards are used by their weight.
    """

    def __init__(self) -> None:
        self._current: BoundedDict[BucketId, tuple[int, float]] = BoundedDict(MAX_BUCKETS)
        self._lock = SignalSafeLock()

    def current(self, bucket_id: BucketId) -> int | None:
        """Return the number of the shard that this process stays with, if any."""
        number, until_s = self._current.get(bucket_id, (-1, 0.0))
        return number if time.monotonic() < until_s else None

    def choose(self, bucket_id: BucketId, fitting: Collection[Shard]) -> Shard | None:
        """Choose one of the shards; None if there is none."""
        if not fitting:
            return None
        now_s = time.monotonic()
        with self._lock:
            number, until_s = self._current.get(bucket_id, (-1, 0.0))
            if now_s < until_s:
                for shard in fitting:
                    if shard.number == number:
                        return shard
            shard = draw(fitting, random.random())
            self._current.put(bucket_id, (shard.number, now_s + STAY_S))
            return shard

    def choose_for_settlement(
        self,
        bucket_id: BucketId,
        images: Mapping[Shard, BucketImage],
        change: BucketChange,
        now_ms: int,
    ) -> Shard:
        """Choose a shard in which credits have room and debts find tokens."""
        suitable = [shard for shard, image in images.items() if _takes(image, change, now_ms)]
        chosen = self.choose(bucket_id, suitable)
        if chosen is not None:
            return chosen
        return max(images, key=lambda shard: (_suitability(images[shard], change, now_ms), shard))


def _takes(image: BucketImage, change: BucketChange, now_ms: int) -> bool:
    if change.forfeits:
        return True
    for key, amount in change.amounts_milli.items():
        state = image.limits[key]
        left = level_milli(state, now_ms) - amount
        if not 0 <= left <= state.rate.capacity_milli:
            return False
    return True


def _suitability(image: BucketImage, change: BucketChange, now_ms: int) -> float:
    """Return how far the least suitable limit is from spilling or from a debt, as a share."""
    margins = []
    for key, amount in change.amounts_milli.items():
        state = image.limits[key]
        capacity = max(1, state.rate.capacity_milli)
        left = level_milli(state, now_ms) - amount
        margins.append((left if amount > 0 else capacity - left) / capacity)
    return min(margins, default=0.0)
