"""The kinds of write to a bucket, ready to be tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, Rate
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Move, Wanted, first_move, move
from zae_limiter.admission.rebase import fresh
from zae_limiter.dynamodb.attempt import Attempt, repeatable, structural
from zae_limiter.dynamodb.expiry import after, expires_ms
from zae_limiter.dynamodb.view import BucketKey, View
from zae_limiter.records.dynamodb import bucket_item
from zae_limiter.records.dynamodb.attributes import n
from zae_limiter.records.dynamodb.bucket_item import Family, StoredBucket
from zae_limiter.records.dynamodb.bucket_writes import (
    Birth,
    Stamp,
    bucket_update,
    first_write,
    require_bucket,
    require_limit,
    require_same,
    structural_write,
)
from zae_limiter.records.dynamodb.update import Update

NO_RATE = Rate(0, 0, 1)  # for moves that do not depend on it
NOTHING = Wanted()
STRUCTURAL = "+"  # so that nobody takes such a write for the charge that follows it

Totals = Mapping[str, Wanted]


class Terms(NamedTuple):
    """What holds for every try of a write: one stamp, one mark."""

    place: BucketKey
    now_ms: int
    operation: str


def shared(
    view: View,
    bucket: StoredBucket,
    wanted: Totals,
    admitted: int,
    in_force: InForce,
    terms: Terms,
) -> Attempt:
    """Everything that is wanted of a bucket, in one write or not at all."""
    if not any(each.taken_milli or each.asked for each in wanted.values()):
        return credit(wanted, admitted, terms)
    image = bucket.image
    moves = [view.move(image, key, each, terms.now_ms) for key, each in wanted.items()]
    until = expires_ms(after(image, moves), in_force, terms.now_ms)
    stamp = Stamp(terms.operation, admitted, until, until == image.expires_ms)
    update = bucket_update(bucket_item.key(*terms.place), moves, stamp)
    require_same(update, bucket)
    if not image.config_version and in_force.governing_version:
        update.set(bucket_item.VERSION, n(in_force.governing_version))
    branches = _branches(moves)
    if any(each.returned_milli for each in wanted.values()):  # not twice at any price
        return Attempt(update, terms.operation, branches=branches)
    return repeatable(update, terms.operation, bucket.operation)._replace(branches=branches)


def _branches(moves: Sequence[Move]) -> dict[str, int]:
    clamped = sum(each.put is not None for each in moves)
    return {"plain_moves": len(moves) - clamped, "clamp_moves": clamped}


def credit(wanted: Totals, admitted: int, terms: Terms) -> Attempt:
    """Balances only move up, whatever they are: nothing needs to be known of the bucket."""
    moves = [
        move(key, NO_RATE, each, terms.now_ms, overflowing=False) for key, each in wanted.items()
    ]
    update = bucket_update(bucket_item.key(*terms.place), moves, Stamp(terms.operation, admitted))
    for each in moves:
        require_limit(update, each.key)
    if not moves:
        require_bucket(update)
    return Attempt(update, terms.operation)


def first(
    in_force: InForce, wanted: Totals, admitted: int, family: Family, terms: Terms
) -> Attempt:
    """Make the bucket, or take from it if it is there and full, which comes to the same."""
    moves = [
        first_move(key, rate, wanted.get(key, NOTHING), terms.now_ms)
        for key, rate in zip(in_force.keys, in_force.rates, strict=True)
    ]
    until = expires_ms(after(fresh(in_force, terms.now_ms), moves), in_force, terms.now_ms)
    stamp = Stamp(terms.operation, admitted, until, keeps=False)
    birth = Birth(
        bucket_item.key(*terms.place),
        bucket_item.index_keys(*terms.place),
        family,
        dict(zip(in_force.keys, in_force.rates, strict=True)),
        in_force.governing_version,
        terms.now_ms,
    )

    def again() -> Update:
        return first_write(birth, moves, stamp, only_if_absent=True)

    return Attempt(first_write(birth, moves, stamp), terms.operation, None, again)


def rebased(bucket: StoredBucket, target: BucketImage, in_force: InForce, terms: Terms) -> Attempt:
    """Bring the bucket's limits to those of ``target``; levels stay."""
    until = expires_ms(target, in_force, terms.now_ms)
    mark = terms.operation + STRUCTURAL
    stamp = Stamp(mark, 0, until, until == bucket.image.expires_ms)
    key = bucket_item.key(*terms.place)
    return structural(structural_write(key, bucket, target, stamp, terms.now_ms), mark, bucket)
