"""Writes that pause a bucket: one for each of its shards, or one that creates it paused.

They are structural: they count the generation up, and change the digest that every charge requires.
A client that does not know of the pause has its next charge refused, and the item that comes with
the refusal tells it. Balances, counters and hours stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS, BucketImage, running_pause_ms
from zae_limiter.admission.in_force import InForce, expires_ms
from zae_limiter.admission.moves import Move, RateLedger
from zae_limiter.admission.quotas import QuotaMove
from zae_limiter.admission.rebase import full_bucket
from zae_limiter.admission.refills import with_quotas
from zae_limiter.admission.usage import HourUsage
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket
from zae_limiter.items.stored.bucket_updates import (
    NewBucket,
    WriteTrailer,
    bucket_update,
    first_write,
    require_generation,
    require_same,
    set_pause,
)
from zae_limiter.items.stored.keys import Key, ShardId
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.items.stored.usage.clauses import HourCounts, HourForm
from zae_limiter.items.stored.usage.hours import TURN_MARK, new_origin


class CreatedBucket(NamedTuple):
    """The write that creates a bucket, and the origin and hour that it begins."""

    write: ItemUpdate
    origin: str
    hour: int


def running_pause(images: Iterable[BucketImage], now_ms: int) -> int | None:
    """Return until when a bucket is paused: as long as any of its shards is."""
    moments = [running_pause_ms(image, now_ms) for image in images]
    return max([moment for moment in moments if moment is not None], default=None)


def pause_write(
    key: Key, bucket: StoredBucket, paused_until_ms: int | None, now_ms: int
) -> ItemUpdate | None:
    """Pause a shard, or lift its pause (None); None if it is as it should be.

    It must not expire meanwhile. A TTL that another client has moved on since is not moved back.
    """
    image = bucket.image
    if running_pause_ms(image, now_ms) == paused_until_ms:
        return None
    write_id, ttl_ms = stored.renewed_write_id(bucket.write_id), image.expires_ms
    expires_early = paused_until_ms is not None and ttl_ms is not None and ttl_ms < paused_until_ms
    trailer = WriteTrailer.to(bucket, write_id, expires_ms=paused_until_ms, keeps=not expires_early)
    update = bucket_update(key, [], trailer)
    require_same(update, bucket)
    require_generation(update, bucket)
    if expires_early and ttl_ms is not None:
        update.equal(stored.TTL, stored.ttl_seconds(ttl_ms))
    set_pause(update, bucket, paused_until_ms)
    return update


def new_bucket(
    shard_id: ShardId,
    in_force: InForce | None,
    link: EntityLink,
    paused_until_ms: int | None,
    *,
    now_ms: int,
    usage_ms: int,
    topped: Sequence[QuotaMove] = (),
) -> CreatedBucket:
    """Create a bucket that is full, and paused or topped up, if there is none.

    Without limits in force it has none, until the first call brings them.
    """
    image = BucketImage({}, 0, None, 0) if in_force is None else full_bucket(in_force, now_ms)
    until_ms: int | None = paused_until_ms
    if in_force is not None:
        paused = image._replace(paused_until_ms=paused_until_ms)
        until_ms = expires_ms(paused, in_force, now_ms, usage_ms)
    image = with_quotas(image, topped)
    rates = {key: state.rate for key, state in image.limits.items()}
    origin, hour = new_origin(), now_ms // HOUR_MS
    new_bucket = NewBucket(
        keys.bucket(*shard_id),
        stored.index_keys(*shard_id),
        link,
        rates,
        image.config_version,
        now_ms,
        HourCounts(HourForm.COUNT, HourUsage(hour), origin=origin),
        paused_until_ms=paused_until_ms,
        hold_writes=[each.holds for each in topped],
    )
    moves = [
        RateLedger(key, image.limits[key], now_ms).first_move()
        if image.limits[key].quota is None
        else Move(key, None, None, 0, image.limits[key].balance_milli)
        for key in rates
    ]
    trailer = WriteTrailer(
        TURN_MARK + stored.new_write_id(now_ms),
        expires_ms=until_ms,
        keeps=False,
        keeps_ids=stored.keeps_earlier_ids(rates),
    )
    write = first_write(new_bucket, moves, trailer, only_if_absent=True)
    return CreatedBucket(write, origin, hour)
