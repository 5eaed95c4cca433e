"""Pausing buckets, in one transaction with the audit event: all shards of a bucket at once."""

from __future__ import annotations

from zae_limiter._async.engines.items.buckets.resources_in_use import ResourcesInUse
from zae_limiter._async.engines.items.buckets.upkeep import BucketUpkeep
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.sharding.shard_reader import ShardReader
from zae_limiter._async.engines.items.transactions import TransactionPlan
from zae_limiter._async.engines.items.usage.writing import UsageRows
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.refills import paused_until
from zae_limiter.clock import Deadline
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.pauses import (
    CreatedBucket,
    new_bucket,
    pause_write,
    running_pause,
)
from zae_limiter.items.buckets.turning import BegunHour
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.models.audit import AuditedChange, pause_event


class BucketPauses:
    """Pauses buckets and lifts pauses; creates a bucket that does not exist."""

    def __init__(
        self,
        table: TableContext,
        cache: BucketCache,
        reader: ShardReader,
        *,
        resources: ResourcesInUse,
        usage_rows: UsageRows,
    ) -> None:
        self._table = table
        self._cache = cache
        self._reader = reader
        self._upkeep = BucketUpkeep(table, cache)
        self._resources = resources
        self._usage_rows = usage_rows

    async def pause(
        self, bucket_id: BucketId, until_ms: int, in_force: InForce | None, change: AuditedChange
    ) -> bool:
        """Pause until a moment, or lift the pause if that is now; False if nothing changes."""
        created: CreatedBucket | None = None

        async def plan(deadline: Deadline) -> TransactionPlan[bool]:
            nonlocal created
            created = None
            shards = await self._reader.read_all(bucket_id, None, deadline)
            now_ms = change.now_ms
            before_ms = running_pause([each.bucket.image for each in shards.values()], now_ms)
            paused_ms = paused_until(before_ms, until_ms, now_ms)
            if not shards and paused_ms is not None:
                created = await self._new_bucket(bucket_id, in_force, paused_ms, now_ms, deadline)
                writes = [created.write]
            else:
                planned = [
                    pause_write(keys.Key.of(each.item), each.bucket, paused_ms, now_ms)
                    for each in shards.values()
                ]
                writes = [write for write in planned if write is not None]
            if not writes:
                return TransactionPlan(False, [])
            action, details = pause_event(paused_ms)
            logged = self._table.log(bucket_id.namespace_id, change, action, details)
            return TransactionPlan(True, [*writes, logged])

        try:
            changed = await self._table.commit(bucket_id.namespace_id, plan)
        finally:
            self._cache.drop_bucket(bucket_id)
        if created is not None:
            self._announce(bucket_id, created)
        return changed

    async def _new_bucket(
        self,
        bucket_id: BucketId,
        in_force: InForce | None,
        paused_until_ms: int,
        now_ms: int,
        deadline: Deadline,
    ) -> CreatedBucket:
        await self._table.refuse_if_purging(bucket_id.namespace_id)
        link = await self._upkeep.entity_link(bucket_id.namespace_id, bucket_id.entity_id, deadline)
        return new_bucket(
            bucket_id.shard(0),
            in_force,
            link,
            paused_until_ms,
            now_ms=now_ms,
            usage_ms=self._table.usage_ms,
        )

    def _announce(self, bucket_id: BucketId, created: CreatedBucket) -> None:
        """Announce the day that a new bucket has begun, and its resource."""
        begun = BegunHour(created.origin, created.hour)
        self._usage_rows.announce(bucket_id.shard(0), begun)
        self._resources.add(bucket_id.namespace_id, bucket_id.resource)
