"""Transactions over several shards of a bucket.

Each requires the size (``n``) and the parameters (``lh``) of the shards that it was planned on and,
where it changes more than balances, their generation (``g``). A split and a merge leave a higher
generation in both items than any that they found: a shard that is created again is never mistaken
for the earlier one, and of two shards that contradict each other the higher generation is newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import HOUR_MS, LimitState
from zae_limiter.admission.moves import Move
from zae_limiter.admission.quotas import HoldWrite
from zae_limiter.admission.shards import split_merge
from zae_limiter.admission.shards.tree import Shard, live
from zae_limiter.admission.slots import SlotWrite
from zae_limiter.admission.usage import NO_AMOUNTS, HourUsage
from zae_limiter.items.buckets.cache import FreshBucket
from zae_limiter.items.buckets.turning import BegunHour, hour_counts, is_over, turn_of
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored import guarded_writes as guarded
from zae_limiter.items.stored import keys, removal
from zae_limiter.items.stored.attributes import Item, n, s, text
from zae_limiter.items.stored.bucket_updates import (
    WriteTrailer,
    bucket_update,
    require_generation,
    require_life,
    require_same,
    write_holds,
    write_slots,
)
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import ItemCheck, ItemDelete, ItemWrite
from zae_limiter.items.stored.usage import clauses
from zae_limiter.items.stored.usage.hours import (
    ADMITTED,
    HOUR,
    ORIGIN,
    TURN_MARK,
    ItemHours,
    new_origin,
)

_COPIED = (stored.DIGEST, stored.NOT_BEFORE, stored.VERSION, stored.CASCADE, stored.PARENT)


def split(item: Item, now_ms: int, write_id: str) -> list[ItemWrite]:
    """Split the shard of an item, as it was read, in two; shards have no TTL.

    The new shard counts from 0, in an hour and under an origin of its own.
    """
    bucket = stored.decode(item)
    kept, new = bucket.shard.halves()
    halves = split_merge.split(bucket.image, now_ms)
    update = bucket_update(Key.of(item), halves.kept, WriteTrailer.to(bucket, write_id))
    require_same(update, bucket)
    require_generation(update, bucket)
    update.set(stored.SHARDS, kept.n)
    update.remove(stored.TTL)
    sibling = _sibling(item, new, halves.given, bucket.generation + 1)
    sibling[stored.WRITE_ID] = s(TURN_MARK + write_id)
    sibling[ORIGIN] = s(new_origin())
    sibling[HOUR] = n(now_ms // HOUR_MS)
    return [update, guarded.put_new(sibling)]


def merge(
    survivor: Item,
    sibling: Item,
    now_ms: int,
    write_id: str,
    expires_ms: int | None = None,
    *,
    usage_days: int = 0,
) -> list[ItemWrite]:
    """Merge a shard into its sibling, both as they were read; the last merge sets ``expires_ms``.

    Both must have the same limits, which ``can_merge`` tells. The counts of the sibling by the hour
    are stored, to be kept for ``usage_days``.
    """
    kept, gone = stored.decode(survivor), stored.decode(sibling)
    moves = split_merge.merge(kept.image, gone.image, now_ms)
    whole = kept.shard.parent
    forgotten = whole.n == stored.UNSHARDED and expires_ms is not None
    trailer = WriteTrailer.to(kept, write_id, expires_ms=expires_ms, keeps=not forgotten)
    update = bucket_update(Key.of(survivor), moves, trailer)
    require_same(update, kept)
    update.equal(stored.GENERATION, kept.generation)
    update.set(stored.SHARDS, whole.n)
    latest = max(kept.generation, gone.generation)
    update.set(stored.GENERATION, latest + 1)
    for name, state in gone.image.limits.items():
        consumed = state.consumed_milli + stored.merged_milli(sibling, name)
        if consumed:  # c_ stays as it is: its changes are usage
            update.add(stored.MERGED + name, consumed)
    if gone.image.config_version > kept.image.config_version:
        update.set(stored.VERSION, gone.image.config_version)
    stored_hours = removal.stored_hours([sibling], usage_days)
    return [update, _removed(sibling, gone), *stored_hours]


def can_merge(survivor: stored.StoredBucket, sibling: stored.StoredBucket) -> bool:
    """Tell whether two shards, as they were read, are halves of one and have the same limits."""
    return (
        survivor.shard.n > 1
        and survivor.shard.survives
        and survivor.shard.sibling == sibling.shard
        and dict(survivor.whole_rates) == dict(sibling.whole_rates)
    )


def siblings(items: Iterable[Item]) -> set[Key]:
    """Return the keys of all shards that must exist beside those of the items."""
    seen: dict[tuple[str, str, str], dict[Shard, int]] = {}
    for item in items:
        namespace_id, entity_id, resource, number = _place(item)
        shard = Shard(number, int(item[stored.SHARDS]["N"]))
        generation = int(item[stored.GENERATION]["N"])
        seen.setdefault((namespace_id, entity_id, resource), {})[shard] = generation
    return {
        keys.bucket(*bucket_id, shard.number)
        for bucket_id, generations in seen.items()
        for shard in live(generations)
    }


class ShardMoves(NamedTuple):
    """The moves of one shard in a transaction, and its changes of held slots and amounts.

    ``through_milli`` is the usage of its quotas that children count as well.
    """

    key: Key
    bucket: stored.StoredBucket
    moves: list[Move]
    slot_writes: Sequence[SlotWrite] = ()
    hold_writes: Sequence[HoldWrite] = ()
    through_milli: Mapping[str, int] = NO_AMOUNTS


class Gathering(NamedTuple):
    """A transaction of several shards.

    ``store_first`` have finished hours that must be stored before it is sent, ``begins_hours`` the
    hours that it begins, both by the number of their shard.
    """

    actions: list[ItemWrite]
    store_first: dict[int, ItemHours]
    begins_hours: dict[int, BegunHour]


def gather(
    parts: Iterable[ShardMoves],
    write_id: str,
    added: HourUsage,
    *,
    now_ms: int,
    usage_ms: int,
) -> Gathering:
    """Make the moves of several shards at once.

    ``added`` is what they add to the hour besides: the first one counts the acquire, and each one
    the part of its own moves that comes through children, by stored name.
    """
    gathering, through_left = Gathering([], {}, {}), dict(added.through_children)
    for part in parts:
        bucket, counts = part.bucket, None
        of_part = HourUsage(added.hour) if gathering.actions else added
        trailer = WriteTrailer.to(bucket, write_id, of_part.admitted)
        is_counted = bool(added.through_children or part.through_milli)
        is_counted = is_counted or not of_part.tally.is_empty
        if is_counted or is_over(bucket, now_ms, usage_ms):
            through = {**_taken_through(part.moves, through_left), **part.through_milli}
            of_part = of_part._replace(through_children=through)
            counts = hour_counts(FreshBucket(bucket), bucket, now_ms, of_part, usage_ms=usage_ms)
            turn = turn_of(bucket, counts, write_id)
            trailer = WriteTrailer.to(bucket, turn.write_id)
            if turn.store_first is not None:
                gathering.store_first[bucket.shard.number] = turn.store_first
            if turn.begins_hour is not None:
                gathering.begins_hours[bucket.shard.number] = turn.begins_hour
        update = bucket_update(part.key, part.moves, trailer)
        require_same(update, bucket)
        if counts is not None:
            clauses.count(update, bucket, counts)
        if part.slot_writes:
            write_slots(update, part.slot_writes, bucket.hours.indexes)
            require_life(update, bucket)  # the answer does not show which one it was
        if part.hold_writes:
            write_holds(update, part.hold_writes, bucket.hours.indexes)
            require_life(update, bucket)
        gathering.actions.append(update)
    return gathering


def _taken_through(moves: Iterable[Move], left_milli: dict[str, int]) -> dict[str, int]:
    """Return the amounts of one shard's moves that come through children; ``left_milli`` falls."""
    taken = {}
    for move in moves:
        amount = min(move.consumed_milli, left_milli.get(move.key, 0))
        if amount > 0:
            taken[move.key] = amount
            left_milli[move.key] -= amount
    return taken


def remove_orphan(parent: Item, orphan: Item, usage_days: int = 0) -> list[ItemWrite]:
    """Remove the orphan of a deleted bucket, as long as the parent says that it has no sibling.

    An entity can be deleted while its bucket is being split. The orphan that this leaves behind
    would prevent the next split. Its counts by the hour are stored.
    """
    guard = ItemCheck(Key.of(parent))
    guard.equal(stored.SHARDS, parent[stored.SHARDS])
    guard.equal(stored.GENERATION, parent[stored.GENERATION])
    removed = guarded.delete_alike(orphan, removal.guards(orphan))
    return [guard, removed, *removal.stored_hours([orphan], usage_days)]


def _sibling(item: Item, shard: Shard, limits: Mapping[str, LimitState], generation: int) -> Item:
    """Return the item of a new shard; its counters start at 0."""
    namespace_id, entity_id, resource, _ = _place(item)
    bucket_id = (namespace_id, entity_id, resource, shard.number)
    sibling = {**keys.bucket(*bucket_id).attributes, **stored.index_keys(*bucket_id)}
    sibling.update({name: item[name] for name in _COPIED if name in item})
    for name, state in limits.items():
        sibling[stored.BALANCE + name] = n(state.balance_milli)
        sibling[stored.CONSUMED + name] = n(0)
        sibling[stored.PARAMETERS + name] = item[stored.PARAMETERS + name]
    sibling[stored.SHARDS] = n(shard.n)
    sibling[stored.GENERATION] = n(generation)
    sibling[stored.WRITES] = n(1)
    sibling[ADMITTED] = n(0)
    return sibling


def _removed(item: Item, gone: stored.StoredBucket) -> ItemDelete:
    """Delete a shard as it was read: its tokens are added to its sibling."""
    removed = ItemDelete(Key.of(item))
    require_same(removed, gone)
    for name in (stored.GENERATION, stored.WRITES, ORIGIN):
        if name in item:
            removed.equal(name, item[name])
    for name in gone.image.limits:
        for prefix in (stored.BALANCE, stored.CONSUMED):
            removed.equal(prefix + name, item[prefix + name])
    return removed


def _place(item: Item) -> schema.BucketKey:
    return schema.parse_bucket_pk(text(item["PK"]))
