"""Reading the shards of a bucket."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from zae_limiter._async.engines.items.port import ItemStore
from zae_limiter.admission.shards.tree import UNKNOWN, Shard, is_whole
from zae_limiter.clock import Clock, Deadline
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.sharding.shared_reads import SharedReads
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.bucket import StoredBucket, decode
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.runtime.waiter import AWaiter

MAX_ROUNDS = 12  # each round finds at least one shard that was split or merged meanwhile
LOST_S = 0.5  # a reader that takes longer is not waited for: its event loop may be closed


class ReadShard(NamedTuple):
    """One shard as it was read."""

    item: Item
    bucket: StoredBucket


class ShardReader:
    """Callers that want the same shards at the same time share a read."""

    def __init__(self, store: ItemStore, cache: BucketCache) -> None:
        self._store = store
        self._cache = cache
        self._reads = SharedReads()

    async def refresh(
        self, bucket_id: BucketId, numbers: Collection[int], clock: Clock, deadline: Deadline
    ) -> None:
        """Bring the cache entries of some shards up to date.

        A read in progress will do if it succeeds, covers the shards, and began after this call.
        """
        since_ms = clock()
        while (waiter := self._reads.join(bucket_id, AWaiter)) is not None:
            assert isinstance(waiter, AWaiter)
            try:
                await waiter.wait(min(LOST_S, max(deadline.left(), 0.0)))
            except TimeoutError:
                break
            if self._were_read(bucket_id, numbers, since_ms):
                return
        try:
            await self.read(bucket_id, numbers, clock, deadline)
        finally:
            self._reads.done(bucket_id)

    def _were_read(self, bucket_id: BucketId, numbers: Collection[int], since_ms: int) -> bool:
        entries = [self._cache.get(bucket_id.shard(number)) for number in numbers]
        return all(entry is not None and entry.at_ms >= since_ms for entry in entries)

    async def read_all(
        self, bucket_id: BucketId, clock: Clock | None, deadline: Deadline
    ) -> dict[Shard, ReadShard]:
        """Read all shards until they fit together; empty if the bucket does not exist."""
        layout = self._cache.layout(bucket_id) or UNKNOWN
        for _ in range(MAX_ROUNDS):
            numbers = [shard.number for shard in layout.live]
            items = await self.read(bucket_id, numbers, clock, deadline)
            if 0 not in items:
                return {}
            shards: dict[Shard, ReadShard] = {}
            for number in numbers:
                layout = layout if number in items else layout.without(number)
            for item in items.values():
                bucket = decode(item)
                shards[bucket.shard] = ReadShard(item, bucket)
                layout = layout.with_seen(bucket.shard, bucket.generation)
            if is_whole(shards):
                return shards
        raise RateLimiterUnavailable("the shards of this bucket keep changing; try again")

    async def read(
        self,
        bucket_id: BucketId,
        numbers: Collection[int],
        clock: Clock | None,
        deadline: Deadline,
    ) -> dict[int, Item]:
        """Read some shards consistently; those that do not exist are left out.

        With a clock, the items become cache entries.
        """
        now_ms = None if clock is None else clock()
        wanted = {keys.bucket(*bucket_id, number): number for number in numbers}
        read = await self._store.get_several(wanted, consistent=True, deadline=deadline)
        items = {wanted[key]: item for key, item in read.items()}
        if now_ms is not None:
            for number in numbers:
                if number not in items:
                    self._cache.drop_shard(bucket_id.shard(number))
            for number, item in items.items():
                self._cache.store_authoritative(bucket_id.shard(number), item, now_ms, None)
        return items
