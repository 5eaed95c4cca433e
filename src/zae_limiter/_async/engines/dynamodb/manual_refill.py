"""Reset and top-up: filling buckets by hand, in one transaction with the audit event."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zae_limiter._async.engines.dynamodb.context import TableContext
from zae_limiter._async.engines.dynamodb.sharding.shard_reader import ReadShard, ShardReader
from zae_limiter._async.engines.dynamodb.transactions import TransactionPlan
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move, top_up_move
from zae_limiter.admission.settle import added_milli, check_topped, reset_moves
from zae_limiter.admission.shards.spreading import place_credits
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.dynamodb.buckets.cache import BucketCache
from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items import transact_items as actions
from zae_limiter.dynamodb.items.bucket import BucketId, renewed_write_id
from zae_limiter.dynamodb.items.bucket_updates import (
    WriteTrailer,
    bucket_update,
    require_generation,
    require_same,
)
from zae_limiter.dynamodb.items.transact_items import Action
from zae_limiter.dynamodb.items.update_expression import UpdateExpression
from zae_limiter.models.audit import AuditAction, AuditedChange
from zae_limiter.models.timestamps import MILLI
from zae_limiter.transport.calls import Deadline

Images = dict[Shard, BucketImage]
Moves = dict[Shard, list[Move]]


class ManualRefill:
    """Fills existing buckets; consumption stays counted."""

    def __init__(self, table: TableContext, cache: BucketCache, reader: ShardReader) -> None:
        self._table = table
        self._cache = cache
        self._reader = reader

    async def reset(self, bucket_id: BucketId, now_ms: int, principal: str | None) -> bool:
        """Fill every limit; False if the bucket does not exist, which means that it is full."""

        def moves(images: Images) -> Moves:
            return {
                shard: moves
                for shard, image in images.items()
                if (moves := reset_moves(image, now_ms))
            }

        change = AuditedChange.by(principal, bucket_id.entity_id, now_ms, bucket_id.resource)

        def log(added: dict[str, int]) -> Action:
            details = {"forgiven_milli": added}
            return self._table.log(
                bucket_id.namespace_id, change, AuditAction.BUCKET_RESET, details
            )

        return await self._fill(bucket_id, moves, log)

    async def top_up(
        self, bucket_id: BucketId, amounts: Mapping[str, int], now_ms: int, principal: str | None
    ) -> bool:
        """Add whole tokens up to the capacity; False if the bucket does not exist: it is full."""

        def moves(images: Images) -> Moves:
            limits = {
                key: state for image in images.values() for key, state in image.limits.items()
            }
            check_topped(limits, amounts)
            wanted = {key: amount * MILLI for key, amount in amounts.items()}
            return {
                shard: [
                    top_up_move(key, images[shard].limits[key], amount, now_ms)
                    for key, amount in parts.items()
                ]
                for shard, parts in place_credits(images, 0, wanted, now_ms).items()
            }

        change = AuditedChange.by(principal, bucket_id.entity_id, now_ms, bucket_id.resource)

        def log(added: dict[str, int]) -> Action:
            details = {"amounts": dict(amounts), "added_milli": added}
            action = AuditAction.BUCKET_TOPPED_UP
            return self._table.log(bucket_id.namespace_id, change, action, details)

        return await self._fill(bucket_id, moves, log)

    async def _fill(
        self,
        bucket_id: BucketId,
        moves: Callable[[Images], Moves],
        log: Callable[[dict[str, int]], Action],
    ) -> bool:
        """Write the moves, and the event if they add anything, in one transaction."""

        async def plan(deadline: Deadline) -> TransactionPlan[bool]:
            shards = await self._reader.read_all(bucket_id, None, deadline)
            images = {shard: each.bucket.image for shard, each in shards.items()}
            if not images:
                return TransactionPlan(False, [])
            planned = moves(images)
            changed = [
                actions.update(_update(shards[shard], of_shard))
                for shard, of_shard in planned.items()
            ]
            added = added_milli(move for of_shard in planned.values() for move in of_shard)
            logged = [log(added)] if any(added.values()) else []
            return TransactionPlan(True, [*changed, *logged])

        try:
            return await self._table.commit(bucket_id.namespace_id, plan)
        finally:
            self._cache.drop_bucket(bucket_id)


def _update(shard: ReadShard, moves: list[Move]) -> UpdateExpression:
    """Render the moves of one shard, under the condition that it still has its limits and size."""
    bucket = shard.bucket
    trailer = WriteTrailer(renewed_write_id(bucket.write_id))
    update = bucket_update(keys.Key.of(shard.item).attributes, moves, trailer)
    require_same(update, bucket)
    require_generation(update, bucket)
    return update
