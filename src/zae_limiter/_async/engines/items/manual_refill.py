"""Reset and top-up: filling buckets by hand, in one transaction with the audit event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from zae_limiter._async.engines.items.buckets.resources_in_use import ResourcesInUse
from zae_limiter._async.engines.items.buckets.upkeep import BucketUpkeep
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.sharding.shard_reader import ReadShard, ShardReader
from zae_limiter._async.engines.items.transactions import TransactionPlan
from zae_limiter._async.engines.items.usage.writing import UsageRows
from zae_limiter.admission.image import BucketImage, LimitState
from zae_limiter.admission.in_force import InForce, stored_units
from zae_limiter.admission.moves import Move, top_up_move
from zae_limiter.admission.quotas import QuotaMove, has_sunk
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.refills import (
    added_details,
    added_milli,
    check_topped,
    is_money,
    reset_moves,
    reset_quotas,
    top_up_quotas,
)
from zae_limiter.admission.shards.spreading import place_credits
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.pauses import CreatedBucket, new_bucket
from zae_limiter.items.buckets.turning import BegunHour
from zae_limiter.items.stored import guarded_writes as guarded
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.bucket import DIGEST, WRITE_ID, WRITES, renewed_write_id
from zae_limiter.items.stored.bucket_updates import (
    WriteTrailer,
    bucket_update,
    require_generation,
    require_same,
    write_holds,
)
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.items.stored.update import ItemUpdate, ItemWrite
from zae_limiter.items.stored.usage.hours import CHILDREN
from zae_limiter.models.audit import AuditAction, AuditedChange
from zae_limiter.models.limit import plain_amounts
from zae_limiter.models.timestamps import MILLI
from zae_limiter.settings import MAX_SHARDS

Images = dict[Shard, BucketImage]
Limits = Mapping[str, LimitState]


class RefilledShard(NamedTuple):
    """The changes of one shard: the moves of rates, and the changes of quotas."""

    moves: list[Move]
    quotas: Sequence[QuotaMove] = ()

    def all_moves(self) -> list[Move]:
        return [*self.moves, *[each.move for each in self.quotas]]


Changes = dict[Shard, RefilledShard]


class ManualRefill:
    """Fills existing buckets; consumption stays counted."""

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
        self._resources = resources
        self._usage_rows = usage_rows
        self._upkeep = BucketUpkeep(table, cache)

    async def reset(self, bucket_id: BucketId, now_ms: int, principal: str | None) -> bool:
        """Fill every limit; False if the bucket does not exist, which means that it is full."""

        def changes(images: Images) -> Changes:
            planned = {
                shard: RefilledShard(reset_moves(image, now_ms), reset_quotas(image, now_ms))
                for shard, image in images.items()
            }
            return {shard: each for shard, each in planned.items() if each.moves or each.quotas}

        change = AuditedChange.by(principal, bucket_id.entity_id, now_ms, bucket_id.resource)

        def log(added: dict[str, int], limits: Limits) -> ItemWrite:
            details = added_details("forgiven", added, limits)
            return self._table.log(
                bucket_id.namespace_id, change, AuditAction.BUCKET_RESET, details
            )

        try:
            return await self._fill(bucket_id, changes, log)
        except IncompatibleSchemaError:
            return await self._replace(bucket_id, change)

    async def _replace(self, bucket_id: BucketId, change: AuditedChange) -> bool:
        """Delete a bucket of a form that nobody can read: without an item it is full.

        All its shards are deleted, since their shares do not fit together without it.
        """

        async def plan(deadline: Deadline) -> TransactionPlan[bool]:
            items = await self._reader.read(bucket_id, range(MAX_SHARDS), None, deadline)
            deleted = [_deleted(item) for item in items.values()]
            details = {"replaced": f"{len(items)} in a form that could not be read"}
            reset = AuditAction.BUCKET_RESET
            logged = self._table.log(bucket_id.namespace_id, change, reset, details)
            return TransactionPlan(bool(items), [*deleted, logged] if items else [])

        try:
            return await self._table.commit(bucket_id.namespace_id, plan)
        finally:
            self._cache.drop_bucket(bucket_id)

    async def top_up(
        self,
        bucket_id: BucketId,
        amounts: Mapping[str, int],
        in_force: InForce | None,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Add whole tokens up to the capacity; False if the bucket does not exist: it is full.

        Quotas get the whole amount for their window. For that the bucket is created, if there are
        limits in force.
        """
        creates = in_force is not None and in_force.has_quota_among(amounts)
        created: CreatedBucket | None = None

        async def create(deadline: Deadline) -> list[ItemWrite]:
            nonlocal created
            assert in_force is not None
            namespace_id, limits = bucket_id.namespace_id, full_bucket(in_force, now_ms).limits
            check_topped(limits, amounts)
            await self._table.refuse_if_purging(namespace_id)
            created = new_bucket(
                bucket_id.shard(0),
                in_force,
                await self._upkeep.entity_link(namespace_id, bucket_id.entity_id, deadline),
                None,
                now_ms=now_ms,
                usage_ms=self._table.usage_ms,
                topped=top_up_quotas(limits, amounts, now_ms),
            )
            added = {key: stored_units(amounts[key], is_money(limits[key])) for key in amounts}
            return [created.write, log(added, limits)]

        def changes(images: Images) -> Changes:
            limits = _limits_of(images)
            check_topped(limits, amounts)
            wanted = {
                key: amount * MILLI for key, amount in amounts.items() if limits[key].quota is None
            }
            planned = {
                shard: RefilledShard(
                    [
                        top_up_move(key, images[shard].limits[key], amount, now_ms)
                        for key, amount in parts.items()
                    ]
                )
                for shard, parts in place_credits(images, 0, wanted, now_ms).items()
            }
            if quotas := top_up_quotas(limits, amounts, now_ms):
                first = min(images)
                planned[first] = planned.get(first, RefilledShard([]))._replace(quotas=quotas)
            return planned

        change = AuditedChange.by(principal, bucket_id.entity_id, now_ms, bucket_id.resource)

        def log(added: dict[str, int], limits: Limits) -> ItemWrite:
            details = {
                "amounts": plain_amounts(amounts),
                **added_details("added", added, limits),
            }
            action = AuditAction.BUCKET_TOPPED_UP
            return self._table.log(bucket_id.namespace_id, change, action, details)

        filled = await self._fill(bucket_id, changes, log, create if creates else None)
        if created is not None:
            begun = BegunHour(created.origin, created.hour)
            self._usage_rows.announce(bucket_id.shard(0), begun)
            self._resources.add(bucket_id.namespace_id, bucket_id.resource)
        return filled

    async def _fill(
        self,
        bucket_id: BucketId,
        changes: Callable[[Images], Changes],
        log: Callable[[dict[str, int], Limits], ItemWrite],
        create: Callable[[Deadline], Awaitable[list[ItemWrite]]] | None = None,
    ) -> bool:
        """Write the changes, and the event if they add anything, in one transaction."""

        async def plan(deadline: Deadline) -> TransactionPlan[bool]:
            shards = await self._reader.read_all(bucket_id, None, deadline)
            images = {shard: each.bucket.image for shard, each in shards.items()}
            if not images and create is not None:
                return TransactionPlan(True, await create(deadline))
            if not images:
                return TransactionPlan(False, [])
            planned = changes(images)
            changed = [_update(shards[shard], of_shard) for shard, of_shard in planned.items()]
            added = added_milli(move for each in planned.values() for move in each.all_moves())
            logged = [log(added, _limits_of(images))] if any(added.values()) else []
            return TransactionPlan(True, [*changed, *logged])

        try:
            return await self._table.commit(bucket_id.namespace_id, plan)
        finally:
            self._cache.drop_bucket(bucket_id)


def _limits_of(images: Images) -> Limits:
    """Return the limits of a bucket; the first shard has all of a quota."""
    return {
        key: state
        for shard in sorted(images, reverse=True)
        for key, state in images[shard].limits.items()
    }


def _deleted(item: Item) -> ItemWrite:
    """Delete an item if no client has written it since, as far as its form shows that."""
    shown = [name for name in (DIGEST, WRITE_ID) if name in item]
    return guarded.delete_alike(item, shown) if shown else guarded.delete(item)


def _update(shard: ReadShard, refilled: RefilledShard) -> ItemUpdate:
    """Render the moves of one shard, under the condition that it still has its limits and size."""
    bucket = shard.bucket
    trailer = WriteTrailer.to(bucket, renewed_write_id(bucket.write_id))
    key = keys.Key.of(shard.item)
    update = bucket_update(key, refilled.all_moves(), trailer)
    require_same(update, bucket)
    require_generation(update, bucket)
    if has_sunk(bucket.image.limits.values()):  # charges hold amounts, and leave the balance as is
        update.equal(WRITES, bucket.image.writes)
    indexes = bucket.hours.indexes
    write_holds(update, [each.holds for each in refilled.quotas], indexes)
    for each in refilled.quotas:
        if each.through_children:
            update.add(f"{CHILDREN}{indexes[each.move.key]}", each.through_children)
    return update
