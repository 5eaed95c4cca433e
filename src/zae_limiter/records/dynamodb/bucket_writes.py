"""Writes to a bucket's item: decided elsewhere, spelled here. Each is right or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, LimitState, Rate, full_balance
from zae_limiter.admission.moves import Move, turn
from zae_limiter.records.dynamodb import bucket_item as stored
from zae_limiter.records.dynamodb.attributes import Item, n, s
from zae_limiter.records.dynamodb.update import Update


class Stamp(NamedTuple):
    """What every write leaves on the item.

    ``expires_ms`` None with ``keeps`` False means: never forgotten; ``keeps`` leaves it as it is.
    """

    operation: str
    admitted: int = 0
    expires_ms: int | None = None
    keeps: bool = True


def bucket_update(key: Item, moves: Sequence[Move], stamp: Stamp) -> Update:
    """The part that all writes share: balances between their bounds, counters, the mark."""
    update = Update(key)
    for each in moves:
        _move(update, each)
    update.set(stored.OPERATION, s(stamp.operation))
    update.add(stored.WRITES, 1)
    if stamp.admitted:
        update.add(stored.ADMITTED, stamp.admitted)
    if not stamp.keeps:
        _expiry(update, stamp.expires_ms)
    return update


def require_same(update: Update, bucket: stored.StoredBucket) -> None:
    """Balances are relative to the rates: nothing is taken under others than those known."""
    update.require_equal(stored.SHARDS, n(bucket.shard.n))
    update.require_equal(stored.DIGEST, s(bucket.digest))


def require_generation(update: Update, bucket: stored.StoredBucket) -> None:
    """For writes that change more than balances."""
    update.require_equal(stored.GENERATION, n(bucket.generation))
    update.add(stored.GENERATION, 1)


def require_last(update: Update, operation: str) -> None:
    """Nobody has written since that operation."""
    update.require_equal(stored.OPERATION, s(operation))


def require_limit(update: Update, key: str) -> None:
    update.require(f"attribute_exists({update.name(stored.BALANCE + key)})")


def require_bucket(update: Update) -> None:
    update.require("attribute_exists(PK)")


def _move(update: Update, move: Move) -> None:
    balance = stored.BALANCE + move.key
    if move.low is not None:  # there is enough
        update.require(f"{update.name(balance)} >= {update.number(move.low)}")
    if move.high is not None:  # it has not run over
        update.require(f"{update.name(balance)} <= {update.number(move.high)}")
    if move.put is not None:
        update.set_number(balance, move.put)
    elif move.add:
        update.add(balance, move.add)
    if move.consumed_milli:
        update.add(stored.CONSUMED + move.key, move.consumed_milli)


def _expiry(update: Update, expires_ms: int | None) -> None:
    if expires_ms is None:
        update.remove(stored.TTL)
    else:
        update.set(stored.TTL, stored.ttl_value(expires_ms))


class Birth(NamedTuple):
    """What a bucket that does not exist yet is made of."""

    key: Item
    index_keys: Item
    family: stored.Family
    rates: Mapping[str, Rate]
    version: int
    generation: int  # the stamp, so that a later bucket of the same key counts on


def first_write(
    birth: Birth, moves: Sequence[Move], stamp: Stamp, *, only_if_absent: bool = False
) -> Update:
    """Make a bucket, or take from one that is full: an absent bucket is a full one.

    ``moves`` are those of ``first_move``, one for each limit in force.
    """
    update, digest = Update(birth.key), stored.digest_of(birth.rates)
    absent = "attribute_not_exists(PK)"
    if only_if_absent:
        update.require(absent)
    else:
        update.require(f"({absent} OR ({_is_full(update, moves, digest)}))")
    for each in moves:
        assert each.put is not None
        update.set_number(stored.BALANCE + each.key, each.put)
        update.add(stored.CONSUMED + each.key, each.consumed_milli)
        update.set(stored.PARAMETERS + each.key, s(stored.pack(birth.rates[each.key])))
    for name, value in {**birth.index_keys, **stored.family_attributes(birth.family)}.items():
        update.set(name, value)
    update.set_number(stored.SHARDS, stored.UNSHARDED)
    update.set(stored.DIGEST, s(digest))
    update.set_if_missing(stored.VERSION, n(birth.version))
    update.set_if_missing(stored.GENERATION, n(birth.generation))
    update.set(stored.OPERATION, s(stamp.operation))
    update.add(stored.WRITES, 1)
    update.add(stored.ADMITTED, stamp.admitted)
    _expiry(update, stamp.expires_ms)
    return update


def _is_full(update: Update, moves: Sequence[Move], digest: str) -> str:
    parts = [
        f"{update.name(stored.SHARDS)} = {update.number(stored.UNSHARDED)}",
        f"{update.name(stored.DIGEST)} = {update.value(s(digest))}",
    ]
    for each in moves:
        assert each.low is not None
        parts.append(f"{update.name(stored.BALANCE + each.key)} >= {update.number(each.low)}")
    return " AND ".join(parts)


def structural_write(
    key: Item,
    bucket: stored.StoredBucket,
    target: BucketImage,
    rates: Mapping[str, Rate],
    stamp: Stamp,
    now_ms: int,
) -> Update:
    """Bring the limits of a bucket to those of ``target``: turned, added or dropped.

    Levels are kept as they are when it is written, not as they were when ``bucket`` was read.
    ``rates`` are those of the whole bucket, ``target`` is at the shard's own.
    """
    update = bucket_update(key, _turns(bucket.image, target, now_ms), stamp)
    require_same(update, bucket)
    require_generation(update, bucket)
    for name, state in target.limits.items():
        before = bucket.image.limits.get(name)
        if before is None:
            update.set_number(stored.BALANCE + name, state.balance_milli)
            update.set_number(stored.CONSUMED + name, state.consumed_milli)
        elif state.consumed_milli != before.consumed_milli:
            update.add(stored.CONSUMED + name, state.consumed_milli - before.consumed_milli)
        if before is None or before.rate != state.rate:
            update.set(stored.PARAMETERS + name, s(stored.pack(rates[name])))
    for name in bucket.image.limits.keys() - target.limits.keys():
        _drop(update, name, bucket.image.limits[name], now_ms)
    update.set(stored.DIGEST, s(stored.digest_of(rates)))
    update.set_number(stored.VERSION, target.config_version)
    return update


def _turns(before: BucketImage, target: BucketImage, now_ms: int) -> list[Move]:
    return [
        turn(name, old, state.rate, now_ms)
        for name, state in target.limits.items()
        if (old := before.limits.get(name)) is not None and old.rate != state.rate
    ]


def _drop(update: Update, name: str, state: LimitState, now_ms: int) -> None:
    """Only a full limit, since that is no different from none, with what it was known to count."""
    still_full = update.number(full_balance(state.rate, now_ms))
    update.require(f"{update.name(stored.BALANCE + name)} >= {still_full}")
    update.require_equal(stored.CONSUMED + name, n(state.consumed_milli))
    for prefix in (stored.BALANCE, stored.CONSUMED, stored.PARAMETERS, stored.MERGED):
        update.remove(prefix + name)


def later_expiry(key: Item, expires_ms: int | None) -> Update:
    """Not to be forgotten earlier than that; leaves a bucket alone that has been split."""
    update = Update(key)
    name = update.name(stored.TTL)
    if expires_ms is None:
        update.require(f"attribute_exists({name})")
    else:
        update.require(f"{name} < {update.value(stored.ttl_value(expires_ms))}")
    update.require_equal(stored.SHARDS, n(stored.UNSHARDED))
    _expiry(update, expires_ms)
    return update
