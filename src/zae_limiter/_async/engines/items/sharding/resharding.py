"""Splitting shards that are written to too fast, and merging those that have become quiet."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import partial

from zae_limiter._async.engines.items.buckets.conditional_write import ConditionalWriter
from zae_limiter._async.engines.items.buckets.upkeep import BucketUpkeep
from zae_limiter._async.engines.items.port import ItemStore
from zae_limiter._async.engines.items.sharding.shard_reader import ReadShard, ShardReader
from zae_limiter._async.engines.items.usage.writing import UsageRows
from zae_limiter.admission.in_force import InForce, expires_ms, is_too_early
from zae_limiter.admission.rebase import rebase, with_others
from zae_limiter.admission.shards.combined import combine
from zae_limiter.admission.shards.pressure import Pressure, mergeable, seem_mergeable, wants_split
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Clock, Deadline
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.buckets import writes
from zae_limiter.items.buckets.cache import BucketCache, CachedBucket
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.buckets.turning import BegunHour
from zae_limiter.items.buckets.writes import WriteContext
from zae_limiter.items.counters import Counters
from zae_limiter.items.sharding import transactions
from zae_limiter.items.sharding.known_shards import KnownShards
from zae_limiter.items.sharding.throttling import ReshardCooldown, ThrottledItems
from zae_limiter.items.stored.bucket import StoredBucket, decode, new_write_id
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.items.stored.update import ItemPut, ItemWrite
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.finishing import ashield
from zae_limiter.store_errors import ConditionFailed, Conflict

MAX_ATTEMPTS = 4  # at one split or merge; the next caller tries again
MAX_PAIRS = 3  # that are read to be merged, for one caller

logger = quiet_logger(__name__)


class Resharder:
    """Reshards on behalf of the caller that notices the need, after its own change is decided."""

    def __init__(
        self,
        store: ItemStore,
        writer: ConditionalWriter,
        reader: ShardReader,
        upkeep: BucketUpkeep,
        *,
        cache: BucketCache,
        throttled: ThrottledItems,
        counters: Counters,
        max_shards: int,
        usage_rows: UsageRows,
    ) -> None:
        self._store = store
        self._writer = writer
        self._reader = reader
        self._upkeep = upkeep
        self._cache = cache
        self._throttled = throttled
        self._cooldown = ReshardCooldown()
        self._counters = counters
        self._max_shards = max_shards
        self._usage_rows = usage_rows

    async def reshard_if_due(self, pending: PendingChange) -> None:
        """Split or merge around the item of a change, if that is due. Raises no outage."""
        entry, shard_id = self._cache.get(pending.shard_id), pending.shard_id
        is_throttled = shard_id in self._throttled
        if entry is None or not self._is_due(entry, is_throttled=is_throttled):
            return
        if pending.deadline.is_nearly_over() or not self._cooldown.begin(shard_id):
            return
        bucket_id, clock, deadline = pending.bucket_id, pending.clock, pending.deadline
        shard = entry.bucket.shard
        try:
            if wants_split(
                entry.pressure, entry.bucket.image, self._max_shards, throttled=is_throttled
            ):
                await ashield(partial(self.split, bucket_id, shard, clock, deadline))
            elif shard.n > 1:
                await ashield(partial(self._merge_quiet_shards, pending))
        except ZAELimiterError:
            logger.debug(
                "split/merge of %r on %r failed, will retry",
                bucket_id.entity_id,
                bucket_id.resource,
                exc_info=True,
            )
        finally:
            self._throttled.discard(shard_id)

    def _is_due(self, entry: CachedBucket, *, is_throttled: bool) -> bool:
        """Tell whether a closer look is worth its price."""
        pressure, shards = entry.pressure, entry.bucket.shard.n
        if pressure.is_high or is_throttled:
            return 2 * shards <= self._max_shards
        return shards > 1 and pressure.at_ms == entry.at_ms  # once per window of the rate

    async def split(
        self, bucket_id: BucketId, shard: Shard, clock: Clock, deadline: Deadline
    ) -> bool:
        """Split a shard in two; False if it does not exist, or has been split already."""
        for _ in range(MAX_ATTEMPTS):
            shards = await self._reader.read_all(bucket_id, clock, deadline)
            if shard not in shards or 2 * shard.n > self._max_shards:
                return False
            now_ms = clock()
            actions = transactions.split(shards[shard].item, now_ms, new_write_id(now_ms))
            if await self._transact(actions, deadline):
                self._counters.add(splits=1)
                self._announce(bucket_id, actions)
                await self._read(bucket_id, shard.halves(), clock, deadline)
                return True
            await self._remove_orphan(bucket_id, shard, clock, deadline)
        return False

    async def merge(
        self,
        bucket_id: BucketId,
        shard: Shard,
        in_force: InForce,
        clock: Clock,
        deadline: Deadline,
    ) -> bool:
        """Merge a shard's sibling into it; False if one does not exist, or their limits differ."""
        for _ in range(MAX_ATTEMPTS):
            shards = await self._reader.read_all(bucket_id, clock, deadline)
            kept, gone = shards.get(shard), shards.get(shard.sibling)
            if kept is None or gone is None:
                return False
            now_ms = clock()
            if not transactions.can_merge(kept.bucket, gone.bucket):
                if not await self._align_limits(
                    bucket_id, (kept, gone), in_force, now_ms, deadline
                ):
                    return False
                continue
            until = _expires_ms(
                kept.bucket, gone.bucket, in_force, now_ms, self._usage_rows.kept_ms
            )
            write_id = new_write_id(now_ms)
            actions = transactions.merge(
                kept.item,
                gone.item,
                now_ms,
                write_id,
                until,
                usage_days=self._usage_rows.kept_days,
            )
            if await self._transact(actions, deadline):
                self._counters.add(merges=1)
                await self._read(bucket_id, (shard, shard.sibling), clock, deadline)
                await self._extend_ttl(bucket_id, in_force, now_ms, deadline)
                return True
        return False

    def _announce(self, bucket_id: BucketId, actions: list[ItemWrite]) -> None:
        """Announce the day that the new half begins."""
        created = actions[1]
        assert isinstance(created, ItemPut)
        half = decode(created.item)
        begun = BegunHour(half.hours.origin, half.hours.hour)
        self._usage_rows.announce(bucket_id.shard(half.shard.number), begun)

    async def _merge_quiet_shards(self, pending: PendingChange) -> None:
        """Merge one pair that was quiet for long; the sibling is read to be sure of that."""
        bucket_id, clock, deadline = pending.bucket_id, pending.clock, pending.deadline
        for shard in seem_mergeable(self._pressures(bucket_id), clock())[:MAX_PAIRS]:
            await self._read(bucket_id, (shard, shard.sibling), clock, deadline)
            if shard in mergeable(self._pressures(bucket_id), clock()) and await self.merge(
                bucket_id, shard, pending.change.in_force, clock, deadline
            ):
                return

    def _pressures(self, bucket_id: BucketId) -> dict[Shard, Pressure]:
        entries = KnownShards.of(self._cache, bucket_id).entries
        return {shard: entry.pressure for shard, entry in entries.items() if entry is not None}

    async def _align_limits(
        self,
        bucket_id: BucketId,
        pair: tuple[ReadShard, ReadShard],
        in_force: InForce,
        now_ms: int,
        deadline: Deadline,
    ) -> bool:
        """Bring both shards to the limits in force, and to the same other limits.

        A limit that is not in force leaves a shard once it is full there. While its sibling still
        has it, the shard gets it back, full.
        """
        changed = False
        targets = [
            rebase(each.bucket.image, in_force.at(each.bucket.shard), now_ms) for each in pair
        ]
        both = {key for target in targets for key in target.limits}
        rates = {**pair[0].bucket.whole_rates, **pair[1].bucket.whole_rates}
        for each, based in zip(pair, targets, strict=True):
            bucket = each.bucket
            target = with_others(based, bucket.image, both, rates, bucket.shard, now_ms)
            if target.limits.keys() != bucket.image.limits.keys():
                shard_id = bucket_id.shard(bucket.shard.number)
                context = WriteContext(
                    shard_id, now_ms, new_write_id(now_ms), self._usage_rows.kept_ms
                )
                write = writes.rebase(bucket, target, in_force, context, rates)
                if write.store_first is not None:
                    await self._usage_rows.store(shard_id, write.store_first, deadline)
                with suppress(ConditionFailed):
                    await self._writer.write(write, deadline)
                    changed = True
                    if write.begins_hour is not None:
                        self._usage_rows.announce(shard_id, write.begins_hour)
        return changed

    async def _extend_ttl(
        self, bucket_id: BucketId, in_force: InForce, now_ms: int, deadline: Deadline
    ) -> None:
        """Extend the TTL for a debt that was written during the last merge."""
        shard_id = bucket_id.shard(0)
        entry = self._cache.get(shard_id)
        if entry is not None and is_too_early(entry.bucket.image):
            await self._upkeep.extend_ttl(shard_id, entry.bucket.image, in_force, now_ms, deadline)

    async def _read(
        self, bucket_id: BucketId, shards: Collection[Shard], clock: Clock, deadline: Deadline
    ) -> None:
        numbers = [shard.number for shard in shards]
        await self._reader.read(bucket_id, numbers, clock, deadline)

    async def _remove_orphan(
        self, bucket_id: BucketId, shard: Shard, clock: Clock, deadline: Deadline
    ) -> None:
        """Remove an orphan that an entity's deletion has left where the new half belongs."""
        numbers = (shard.number, shard.halves()[1].number)
        items = await self._reader.read(bucket_id, numbers, clock, deadline)
        parent, orphan = (items.get(number) for number in numbers)
        if parent is None or orphan is None or decode(parent).shard != shard:
            return
        actions = transactions.remove_orphan(parent, orphan, self._usage_rows.kept_days)
        await self._transact(actions, deadline)

    async def _transact(self, actions: list[ItemWrite], deadline: Deadline) -> bool:
        # Repeatable: each action requires the generation that it counts up.
        try:
            await self._store.write_group(actions, deadline, repeatable=True)
        except Conflict:
            return False
        return True


def _expires_ms(
    kept: StoredBucket, gone: StoredBucket, in_force: InForce, now_ms: int, usage_ms: int
) -> int | None:
    """Return the TTL of the bucket after its last merge; shards have none."""
    if kept.shard.n > 2:
        return None
    shards = {each.shard: each.image for each in (kept, gone)}
    image = combine(shards, kept.whole_rates, now_ms)
    return expires_ms(image, in_force, now_ms, usage_ms)
