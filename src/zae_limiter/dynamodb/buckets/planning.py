"""The next step for the changes of a group, given what is known of the bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, is_paused
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import charge_moves
from zae_limiter.admission.rebase import full_bucket, full_limit, is_newer, rebase
from zae_limiter.admission.request import StaleLimits
from zae_limiter.admission.reservation import bound_ms, reservation_moves
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.dynamodb.buckets import writes
from zae_limiter.dynamodb.buckets.cache import FreshBucket, KnownBucket, holds_limits
from zae_limiter.dynamodb.buckets.pending import (
    SHARD_MERGED,
    BucketChange,
    Rejected,
    ShardMerged,
    fits_alone,
    select,
    through_children,
    total,
    total_at,
)
from zae_limiter.dynamodb.buckets.planned_slots import PlannedSlots
from zae_limiter.dynamodb.buckets.writes import Attempt, WriteContext
from zae_limiter.dynamodb.items.bucket import EntityLink, StoredBucket
from zae_limiter.models.config import ConfigSource


class NothingToWrite(NamedTuple):
    """No charge fits into ``image``, and no debt or credit is left.

    ``late_credits`` are those to a bucket or limit that does not exist, by stored name: what is
    given back and the part of it that came through children. They count as usage, though what is
    absent is full.
    """

    image: BucketImage
    shard: Shard = WHOLE
    late_credits: Mapping[str, tuple[int, int]] = {}


class ReadFirst:
    """The bucket has to be read before anything can be decided."""

    __slots__ = ()


READ_FIRST = ReadFirst()
Step = Attempt | NothingToWrite | ReadFirst | ShardMerged | StaleLimits


def plan(
    known: KnownBucket,
    changes: Sequence[BucketChange],
    context: WriteContext,
    link: EntityLink,
) -> Step:
    """Return the next step for changes that can share a write; the first one leads."""
    bucket = known.bucket
    if bucket is None:
        return _without_bucket(known, changes, context, link)
    whole = changes[0].in_force
    in_force = whole.at(bucket.shard)
    paused = is_paused(bucket.image, context.now_ms)
    if paused and not known.is_fresh and any(change.is_charge for change in changes):
        return READ_FIRST  # the store would admit what knows the digest of the pause
    if (
        len(changes) == 1
        and changes[0].is_charge
        and not paused
        and bucket.image.holds is None
        and holds_limits(bucket, in_force)
    ):
        return _single_charge(known, bucket, changes[0], in_force, context)
    charges = [change for change in changes if change.is_charge]
    if charges and not holds_limits(bucket, in_force):
        return _other_limits(bucket, charges, whole, context)
    missing = _settled_and_missing(bucket.image, changes)
    if missing and not known.is_fresh:
        return READ_FIRST
    owed = {key for key, amount in missing.items() if amount > 0}
    if owed:
        target = _with_limits(bucket.image, owed, in_force, context.now_ms)
        return writes.rebase(bucket, target, whole, context)
    return _with_bucket(known, bucket, changes, in_force, context)


def rejected_alone(
    known: FreshBucket, changes: Sequence[BucketChange], now_ms: int
) -> Rejected | None:
    """Reject a charge that does not fit into a bucket that was read just now.

    It is what ``plan`` would find, at half of its price; None if that is to be asked.
    """
    bucket, change = known.bucket, changes[0]
    if (
        len(changes) > 1
        or bucket is None
        or not change.is_charge
        or change.until_ms is not None
        or bucket.image.holds is not None
        or not holds_limits(bucket, change.in_force.at(bucket.shard))
        or fits_alone(change, bucket.image, now_ms)
    ):
        return None
    return Rejected(bucket.image, now_ms, bucket.shard)


def _single_charge(
    known: KnownBucket,
    bucket: StoredBucket,
    change: BucketChange,
    in_force: InForce,
    context: WriteContext,
) -> Step:
    """Send a charge even if it does not seem to fit, unless the bucket was read just now."""
    now_ms = context.now_ms
    limits, amounts, age_ms = bucket.image.limits, change.amounts_milli, now_ms - known.at_ms
    if change.until_ms is None:
        moves, fits = charge_moves(
            limits, amounts, now_ms, age_ms, known.others_milli_per_s, reject=known.is_fresh
        )
    else:
        moves, fits = reservation_moves(
            limits,
            amounts,
            now_ms,
            by_ms=bound_ms(change.until_ms, now_ms),
            age_ms=age_ms,
            others_milli_per_s=known.others_milli_per_s,
        )
    if known.is_fresh and not fits:
        return NothingToWrite(bucket.image, bucket.shard)
    return writes.charge(known, bucket, moves, change, in_force, context)


def _other_limits(
    bucket: StoredBucket, charges: Sequence[BucketChange], whole: InForce, context: WriteContext
) -> Step:
    """Bring the bucket to the limits in force, unless its own are newer."""
    image, in_force = bucket.image, whole.at(bucket.shard)
    if _may_be_outdated(image, in_force) and not any(charge.refreshed for charge in charges):
        return StaleLimits(image.config_version)
    target = rebase(image, in_force, context.now_ms)
    return writes.rebase(bucket, target, whole, context)


def _without_bucket(
    known: KnownBucket, changes: Sequence[BucketChange], context: WriteContext, link: EntityLink
) -> Step:
    """Create the bucket: an absent one is full, and one that is not cached may exist.

    Shards other than the first are only created by splitting.
    """
    if context.shard_id.number:
        return SHARD_MERGED if known.is_fresh else READ_FIRST
    in_force = changes[0].in_force
    full = full_bucket(in_force, context.now_ms)
    taken = select(changes, full, context.now_ms).taken
    slots = None
    if full.holds is not None:  # none are held: what is to be released has expired
        slots = PlannedSlots(full, [], context.now_ms)
        slots.take(changes, taken)
    wanted = total(changes[position] for position in taken)  # the full bucket holds them
    is_count = all(change.is_count for change in changes)
    creates = is_count and known.is_fresh and not context.tally.is_empty
    if creates or any(each.taken_milli or each.asked for each in wanted.values()):
        admitted = sum(changes[position].admitted for position in taken)
        return writes.first(
            in_force,
            wanted,
            link,
            context,
            admitted=admitted,
            positions=taken,
            through_milli=through_children(changes[position] for position in taken),
            slots=slots,
        )
    if known.is_fresh:
        settled = [change for change in changes if not change.is_charge]
        return NothingToWrite(full, late_credits=_late_credits(settled))
    if is_count or any(
        change.is_charge or change.through_child or change.held_slots for change in changes
    ):
        return READ_FIRST  # of what came through children, or is held, the slots must be known
    admitted = sum(change.admitted for change in changes)
    return writes.credit(wanted, context, admitted=admitted, positions=taken)


def _late_credits(given: Sequence[BucketChange]) -> dict[str, tuple[int, int]]:
    through = through_children(given)
    return {key: (each.net_milli, through.get(key, 0)) for key, each in total(given).items()}


def _with_bucket(
    known: KnownBucket,
    bucket: StoredBucket,
    changes: Sequence[BucketChange],
    in_force: InForce,
    context: WriteContext,
) -> Step:
    image, slots = bucket.image, None
    if image.holds is not None:
        slots = PlannedSlots(image, changes, context.now_ms)
        if slots.is_doubtful and not known.is_fresh:
            return READ_FIRST
        image = slots.image
    elif not known.is_fresh and any(change.held_slots for change in changes):
        return READ_FIRST
    taken = select(changes, image, context.now_ms).taken
    if not taken:
        if known.is_fresh:
            return NothingToWrite(image, bucket.shard)
        taken = [0]  # the entry may be outdated: the store decides
    if bucket.shard.n > 1:
        taken = _without_hidden_spills(changes, taken)
    selected = [changes[position].without_absent_limits(image) for position in taken]
    wanted = total_at(selected, image, context.now_ms)
    admitted = sum(change.admitted for change in selected)
    dropped = [changes[position].to_absent_limits(image) for position in taken]
    late_credits = _late_credits([change for change in dropped if change is not None])
    if slots is not None:
        slots.take(changes, taken)
    is_sure = known.is_fresh or all(change.is_count for change in changes)
    changes_nothing = not wanted and not admitted and not (slots and slots.writes())
    if is_sure and changes_nothing and context.tally.is_empty:
        return NothingToWrite(image, bucket.shard, late_credits)
    attempt = writes.group(
        known,
        bucket,
        wanted,
        in_force,
        context,
        admitted=admitted,
        positions=taken,
        through_milli=through_children(selected),
        slots=slots,
    )
    return attempt._replace(late_credits=late_credits) if late_credits else attempt


def _without_hidden_spills(changes: Sequence[BucketChange], taken: list[int]) -> list[int]:
    """Write credits apart from charges and debts of the same limits.

    What a shard has no room for is spilled to the other shards, and only a write that takes nothing
    shows how much that is.
    """
    if len(taken) == 1:
        return taken
    wanted = total(changes[position] for position in taken)
    if not any(each.returned_milli and each.taken_milli for each in wanted.values()):
        return taken
    only_credits = [position for position in taken if _only_gives(changes[position])]
    return only_credits or taken[:1]


def _only_gives(change: BucketChange) -> bool:
    return all(amount <= 0 for amount in change.amounts_milli.values())


def _settled_and_missing(image: BucketImage, changes: Sequence[BucketChange]) -> dict[str, int]:
    """Return the largest debt, or else credit, to each limit that the bucket does not have."""
    missing: dict[str, int] = {}
    for change in changes:
        if not change.is_charge:
            for key, amount in change.amounts_milli.items():
                if key not in image.limits:
                    missing[key] = max(amount, missing.get(key, amount))
    return missing


def _with_limits(
    image: BucketImage, missing: set[str], in_force: InForce, now_ms: int
) -> BucketImage:
    added = {key: full_limit(in_force.rate_of(key), now_ms) for key in missing}
    return image._replace(limits={**image.limits, **added})


def _may_be_outdated(image: BucketImage, in_force: InForce) -> bool:
    """Tell whether the limits in force may be older than those of the bucket.

    Both were not read at one moment, so an equal version says nothing about their age. Limits of
    a call are never outdated.
    """
    if in_force.source is ConfigSource.OVERRIDE:
        return is_newer(image, in_force)
    return image.config_version >= in_force.version > 0 or is_newer(image, in_force)
