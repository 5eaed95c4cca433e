"""Filling buckets by hand: each time one transaction with its audit event."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zae_limiter._async.engines.dynamodb.reading import get_item
from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter._async.engines.dynamodb.transactions import Plan
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move, reset_move, top_up_move
from zae_limiter.admission.settle import check_topped
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.view import BucketKey
from zae_limiter.models.audit import AuditAction
from zae_limiter.models.limit import MILLI
from zae_limiter.records.dynamodb import actions, bucket_item, keys
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.audit import Change
from zae_limiter.records.dynamodb.bucket_marks import renewed
from zae_limiter.records.dynamodb.bucket_writes import (
    Stamp,
    bucket_update,
    require_generation,
    require_same,
)
from zae_limiter.transport.deadline import Deadline

Moves = Callable[[BucketImage], list[Move]]


class Mending:
    """Consumption stays counted, and no bucket is made."""

    def __init__(self, store: Store, known: Known) -> None:
        self._store = store
        self._known = known

    async def reset(self, place: BucketKey, now_ms: int, principal: str | None) -> bool:
        """Fill every limit; False if there is no bucket, which means that it is full."""

        def moves(image: BucketImage) -> list[Move]:
            return [reset_move(key, state, now_ms) for key, state in image.limits.items()]

        change = Change.by(principal, place[1], now_ms, place[2])
        logged = self._store.log(place[0], change, AuditAction.BUCKET_RESET)
        return await self._mend(place, moves, logged)

    async def top_up(
        self, place: BucketKey, amounts: Mapping[str, int], now_ms: int, principal: str | None
    ) -> bool:
        """Add whole tokens up to the capacity; False if there is no bucket: it is full."""

        def moves(image: BucketImage) -> list[Move]:
            check_topped(image, amounts)
            return [
                top_up_move(key, image.limits[key], amount * MILLI, now_ms)
                for key, amount in amounts.items()
            ]

        change, details = Change.by(principal, place[1], now_ms, place[2]), dict(amounts)
        action = AuditAction.BUCKET_TOPPED_UP
        logged = self._store.log(place[0], change, action, {"amounts": details})
        return await self._mend(place, moves, logged)

    async def _mend(self, place: BucketKey, moves: Moves, logged: Action) -> bool:
        async def plan(deadline: Deadline) -> Plan[bool]:
            item = await get_item(self._store.client, keys.bucket(*place), deadline)
            if item is None:
                return Plan(False, [])
            bucket = bucket_item.decode(item)
            key = bucket_item.key(*place)
            update = bucket_update(key, moves(bucket.image), Stamp(renewed(bucket.operation)))
            require_same(update, bucket)
            require_generation(update, bucket)
            return Plan(True, [actions.update(update), logged])

        try:
            return await self._store.commit(place[0], plan)
        finally:
            self._known.forget(place)
