"""The kinds of write to a bucket, ready to be tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.admission.charge import kept_until
from zae_limiter.admission.image import BucketImage, Rate
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Move, Wanted, first_move, guessed_move, move
from zae_limiter.admission.rebase import fresh
from zae_limiter.dynamodb.attempt import ALONE, Attempt, structural
from zae_limiter.dynamodb.expiry import after, expires_ms, is_time_to_fill
from zae_limiter.dynamodb.part import Part
from zae_limiter.dynamodb.view import Spot, View
from zae_limiter.records.dynamodb import bucket_item
from zae_limiter.records.dynamodb.bucket_item import Family, StoredBucket
from zae_limiter.records.dynamodb.bucket_writes import (
    Birth,
    Stamp,
    bucket_update,
    first_write,
    require_bucket,
    require_limit,
    structural_write,
)
from zae_limiter.records.dynamodb.update import Update
from zae_limiter.records.dynamodb.usual_write import UsualWrite

NO_RATE = Rate(0, 0, 1)  # for moves that do not depend on it
NOTHING = Wanted()
NO_AMOUNTS: Mapping[str, int] = {}
STRUCTURAL = "+"  # so that nobody takes such a write for the charge that follows it

Totals = Mapping[str, Wanted]


class Terms(NamedTuple):
    """What holds for every try of a write: one stamp, one mark."""

    spot: Spot
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
    limits, now_ms = bucket.image.limits, terms.now_ms
    others, age_ms = view.others_milli_per_s, now_ms - view.at_ms
    moves = []
    for key, (charged, owed, returned, asked) in wanted.items():
        rate, taken = others.get(key, 0), charged + owed
        moves.append(guessed_move(key, limits[key], taken, returned, asked, now_ms, age_ms, rate))
    owes = any(each.owed_milli for each in wanted.values())
    gives = any(each.returned_milli for each in wanted.values())
    return _usual(bucket, moves, admitted, in_force, terms, owes, gives)


def charge(
    view: View, bucket: StoredBucket, part: Part, in_force: InForce, terms: Terms
) -> Attempt:
    """The same for a charge by itself, which is the usual thing."""
    limits, now_ms = bucket.image.limits, terms.now_ms
    others, age_ms = view.others_milli_per_s, now_ms - view.at_ms
    moves = []
    for key, amount in part.amounts_milli.items():
        rate = others.get(key, 0)
        moves.append(guessed_move(key, limits[key], amount, 0, True, now_ms, age_ms, rate))
    amounts = part.amounts_milli
    return _usual(bucket, moves, part.admitted, in_force, terms, False, False, ALONE, amounts)


def _usual(
    bucket: StoredBucket,
    moves: list[Move],
    admitted: int,
    in_force: InForce,
    terms: Terms,
    owes: bool,
    gives: bool,
    taken: Sequence[int] = (),
    net_milli: Mapping[str, int] = NO_AMOUNTS,
) -> Attempt:
    image, (spot, now_ms, mark) = bucket.image, terms
    until = kept_until(image.expires_ms, in_force, now_ms)
    if owes or not is_time_to_fill(until, image, in_force, now_ms):
        until = expires_ms(after(image, moves), in_force, now_ms)
    stamp = Stamp(mark, admitted, until, until == image.expires_ms)
    version = 0 if image.config_version else in_force.governing_version
    write = UsualWrite(spot, moves, stamp, bucket, version)
    clamped = 0
    for _, _, _, _, put, _ in moves:
        if put is not None:
            clamped += 1
    plain = len(moves) - clamped
    if gives:  # not twice at any price
        return Attempt(write, mark, None, None, False, plain, clamped)
    before, again = bucket.operation, write.guarded
    return Attempt(write, mark, before, again, False, plain, clamped, taken, net_milli)


def credit(wanted: Totals, admitted: int, terms: Terms) -> Attempt:
    """Balances only move up, whatever they are: nothing needs to be known of the bucket."""
    moves = [
        move(key, NO_RATE, each, terms.now_ms, overflowing=False) for key, each in wanted.items()
    ]
    update = bucket_update(bucket_item.key(*terms.spot), moves, Stamp(terms.operation, admitted))
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
        bucket_item.key(*terms.spot),
        bucket_item.index_keys(*terms.spot),
        family,
        dict(zip(in_force.keys, in_force.rates, strict=True)),
        in_force.governing_version,
        terms.now_ms,
    )

    def again() -> Update:
        return first_write(birth, moves, stamp, only_if_absent=True)

    return Attempt(first_write(birth, moves, stamp), terms.operation, None, again)


def rebased(bucket: StoredBucket, target: BucketImage, in_force: InForce, terms: Terms) -> Attempt:
    """Bring the bucket's limits to those of ``target``; levels stay.

    ``in_force`` are the limits of the whole bucket, ``target`` is at the shard's own rates.
    """
    until = expires_ms(target, in_force.at(bucket.shard), terms.now_ms)
    mark = terms.operation + STRUCTURAL
    stamp = Stamp(mark, 0, until, until == bucket.image.expires_ms)
    key, rates = bucket_item.key(*terms.spot), _whole_rates(bucket, target, in_force)
    update = structural_write(key, bucket, target, rates, stamp, terms.now_ms)
    return structural(update, mark, bucket)


def _whole_rates(bucket: StoredBucket, target: BucketImage, in_force: InForce) -> dict[str, Rate]:
    """Of limits that stay as they are, what is stored; of the others, what is in force."""
    before, stored = bucket.image.limits, bucket.whole_rates
    return {
        key: stored[key]
        if key in before and before[key].rate == state.rate
        else in_force.rate_of(key)
        for key, state in target.limits.items()
    }
