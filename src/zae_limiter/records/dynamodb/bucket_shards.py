"""Writes to several shards of a bucket: each a transaction that is carried out whole or not.

They guard what they rest on: the shard's size (``n``), its parameters (``lh``) and, where they
change more than balances, its generation (``g``). A split and a merge leave a higher generation
than any that they found, in both items: so a shard that comes back is never taken for the one
that was there before, and of two that contradict each other the higher one is the later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.admission.image import LimitState
from zae_limiter.admission.moves import Move
from zae_limiter.admission.shards import division
from zae_limiter.admission.shards.tree import Shard, live
from zae_limiter.records.dynamodb import actions, keys
from zae_limiter.records.dynamodb import bucket_item as stored
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.attributes import Item, n, s, text
from zae_limiter.records.dynamodb.bucket_writes import (
    Stamp,
    bucket_update,
    require_generation,
    require_same,
)
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.records.dynamodb.update import Update

_COPIED = (stored.DIGEST, stored.VERSION, stored.CASCADE, stored.PARENT)


def split(item: Item, now_ms: int, operation: str) -> list[Action]:
    """Cut the shard of an item, as it was read, in two; neither is forgotten from then on."""
    found = stored.decode(item)
    kept, new = found.shard.halves()
    halves = division.split(found.image, now_ms)
    update = bucket_update(_key(item), halves.kept, Stamp(operation))
    require_same(update, found)
    require_generation(update, found)
    update.set_number(stored.SHARDS, kept.n)
    update.remove(stored.TTL)
    sibling = _sibling(item, new, halves.given, found.generation + 1, operation)
    return [actions.update(update), actions.put_new(sibling)]


def merge(
    survivor: Item, sibling: Item, now_ms: int, operation: str, expires_ms: int | None = None
) -> list[Action]:
    """Add a shard to its sibling, both as they were read; ``expires_ms`` is for the last merge.

    Both have the same limits, or nothing can be added up: ``can_merge`` tells.
    """
    kept, gone = stored.decode(survivor), stored.decode(sibling)
    moves = division.merge(kept.image, gone.image, now_ms)
    whole = kept.shard.parent
    forgotten = whole.n == stored.UNSHARDED and expires_ms is not None
    update = bucket_update(
        _key(survivor), moves, Stamp(operation, expires_ms=expires_ms, keeps=not forgotten)
    )
    require_same(update, kept)
    update.require_equal(stored.GENERATION, n(kept.generation))
    update.set_number(stored.SHARDS, whole.n)
    latest = max(kept.generation, gone.generation)
    update.set_number(stored.GENERATION, latest + 1)
    for name, state in gone.image.limits.items():
        consumed = state.consumed_milli + stored.merged_milli(sibling, name)
        if consumed:  # usage is what changes in c_, so that stays as it is
            update.add(stored.MERGED + name, consumed)
    if gone.image.config_version > kept.image.config_version:
        update.set_number(stored.VERSION, gone.image.config_version)
    return [actions.update(update), _removed(sibling, gone)]


def can_merge(survivor: stored.StoredBucket, sibling: stored.StoredBucket) -> bool:
    """Whether two shards, as they were read, are halves of one and have the same limits."""
    return (
        survivor.shard.n > 1
        and survivor.shard.survives
        and survivor.shard.sibling == sibling.shard
        and survivor.digest == sibling.digest
    )


def siblings(items: Iterable[Item]) -> set[Key]:
    """All shards that there must be beside those of the items."""
    seen: dict[tuple[str, str, str], dict[Shard, int]] = {}
    for item in items:
        namespace_id, entity_id, resource, number = _place(item)
        shard = Shard(number, int(item[stored.SHARDS]["N"]))
        generation = int(item[stored.GENERATION]["N"])
        seen.setdefault((namespace_id, entity_id, resource), {})[shard] = generation
    return {
        keys.bucket(*place, shard.number) for place, found in seen.items() for shard in live(found)
    }


class Taken(NamedTuple):
    """One shard's part of what is gathered."""

    key: Item
    bucket: stored.StoredBucket
    moves: list[Move]


def gather(parts: Iterable[Taken], operation: str, admitted: int) -> list[Action]:
    """Take from several shards at once; the admission is counted with the first one."""
    found: list[Action] = []
    for part in parts:
        update = bucket_update(part.key, part.moves, Stamp(operation, 0 if found else admitted))
        require_same(update, part.bucket)
        found.append(actions.update(update))
    return found


def sweep(parent: Item, orphan: Item) -> list[Action]:
    """Remove what is left of an earlier life, as long as the parent says that it has no sibling.

    An entity can be deleted while its bucket is being split, and what that leaves behind would
    stand in the way of the next split.
    """
    guard = Update(_key(parent))
    guard.require_equal(stored.SHARDS, parent[stored.SHARDS])
    guard.require_equal(stored.GENERATION, parent[stored.GENERATION])
    removed = Update(_key(orphan))
    removed.require_equal(stored.GENERATION, orphan[stored.GENERATION])
    return [{"ConditionCheck": _condition(guard)}, {"Delete": _condition(removed)}]


def _sibling(
    item: Item, shard: Shard, limits: Mapping[str, LimitState], generation: int, operation: str
) -> Item:
    """The item of a shard that begins; it counts from 0."""
    namespace_id, entity_id, resource, _ = _place(item)
    place = (namespace_id, entity_id, resource, shard.number)
    sibling = {**stored.key(*place), **stored.index_keys(*place)}
    sibling.update({name: item[name] for name in _COPIED if name in item})
    for name, state in limits.items():
        sibling[stored.BALANCE + name] = n(state.balance_milli)
        sibling[stored.CONSUMED + name] = n(0)
        sibling[stored.PARAMETERS + name] = item[stored.PARAMETERS + name]
    sibling[stored.SHARDS] = n(shard.n)
    sibling[stored.GENERATION] = n(generation)
    sibling[stored.WRITES] = n(1)
    sibling[stored.ADMITTED] = n(0)
    sibling[stored.OPERATION] = s(operation)
    return sibling


def _removed(item: Item, gone: stored.StoredBucket) -> Action:
    """Only as it was read: what it held is added to its sibling."""
    update = Update(_key(item))
    require_same(update, gone)
    update.require_equal(stored.GENERATION, n(gone.generation))
    for name in gone.image.limits:
        for prefix in (stored.BALANCE, stored.CONSUMED):
            update.require_equal(prefix + name, item[prefix + name])
    return {"Delete": _condition(update)}


def _condition(update: Update) -> dict[str, object]:
    return {name: value for name, value in update.action().items() if name != "UpdateExpression"}


def _place(item: Item) -> schema.BucketKey:
    return schema.parse_bucket_pk(text(item["PK"]))


def _key(item: Item) -> Item:
    return Key.of(item).item
