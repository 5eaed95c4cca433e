"""Filling buckets by hand: each time one transaction with its audit event."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter._async.engines.dynamodb.survey import Found, Survey
from zae_limiter._async.engines.dynamodb.transactions import Plan
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move, reset_move, top_up_move
from zae_limiter.admission.settle import check_topped
from zae_limiter.admission.shards.spreading import place_credits
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.view import Place
from zae_limiter.models.audit import AuditAction
from zae_limiter.models.limit import MILLI
from zae_limiter.records.dynamodb import actions, keys
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.audit import Change
from zae_limiter.records.dynamodb.bucket_marks import renewed
from zae_limiter.records.dynamodb.bucket_writes import (
    Stamp,
    bucket_update,
    require_generation,
    require_same,
)
from zae_limiter.records.dynamodb.update import Update
from zae_limiter.transport.deadline import Deadline

Images = dict[Shard, BucketImage]
Moves = dict[Shard, list[Move]]


class Mending:
    """Consumption stays counted, and no bucket is made."""

    def __init__(self, store: Store, known: Known, survey: Survey) -> None:
        self._store = store
        self._known = known
        self._survey = survey

    async def reset(self, place: Place, now_ms: int, principal: str | None) -> bool:
        """Fill every limit; False if there is no bucket, which means that it is full."""

        def moves(images: Images) -> Moves:
            return {
                shard: [reset_move(key, state, now_ms) for key, state in image.limits.items()]
                for shard, image in images.items()
            }

        change = Change.by(principal, place[1], now_ms, place[2])
        logged = self._store.log(place[0], change, AuditAction.BUCKET_RESET)
        return await self._mend(place, moves, logged)

    async def top_up(
        self, place: Place, amounts: Mapping[str, int], now_ms: int, principal: str | None
    ) -> bool:
        """Add whole tokens up to the capacity; False if there is no bucket: it is full."""

        def moves(images: Images) -> Moves:
            check_topped({key for image in images.values() for key in image.limits}, amounts)
            wanted = {key: amount * MILLI for key, amount in amounts.items()}
            return {
                shard: [
                    top_up_move(key, images[shard].limits[key], amount, now_ms)
                    for key, amount in parts.items()
                ]
                for shard, parts in place_credits(images, 0, wanted, now_ms).items()
            }

        change, details = Change.by(principal, place[1], now_ms, place[2]), dict(amounts)
        action = AuditAction.BUCKET_TOPPED_UP
        logged = self._store.log(place[0], change, action, {"amounts": details})
        return await self._mend(place, moves, logged)

    async def _mend(self, place: Place, moves: Callable[[Images], Moves], logged: Action) -> bool:
        async def plan(deadline: Deadline) -> Plan[bool]:
            found = await self._survey.whole(place, None, deadline)
            images = {shard: each.bucket.image for shard, each in found.items()}
            if not images:
                return Plan(False, [])
            changed = [
                actions.update(_update(found[shard], each)) for shard, each in moves(images).items()
            ]
            return Plan(True, [*changed, logged])

        try:
            return await self._store.commit(place[0], plan)
        finally:
            self._known.forget(place)


def _update(found: Found, moves: list[Move]) -> Update:
    """One shard's part; nobody must have changed its limits or its size meanwhile."""
    bucket = found.bucket
    stamp = Stamp(renewed(bucket.operation))
    update = bucket_update(keys.Key.of(found.item).item, moves, stamp)
    require_same(update, bucket)
    require_generation(update, bucket)
    return update
