"""The plan of the next step for the changes of a group, given the bucket as it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, is_paused
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Wanted
from zae_limiter.admission.rebase import full_bucket, full_limit, is_newer, rebase
from zae_limiter.admission.request import StaleLimits
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.items.buckets import writes
from zae_limiter.items.buckets.cache import KnownBucket, holds_limits
from zae_limiter.items.buckets.changes import BucketChange, select, through_children, total
from zae_limiter.items.buckets.outcomes import SHARD_MERGED, ShardMerged
from zae_limiter.items.buckets.planned_quotas import PlannedQuotas
from zae_limiter.items.buckets.planned_slots import PlannedSlots
from zae_limiter.items.buckets.writes import CarriedChanges, PlannedWrite, WriteContext
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket
from zae_limiter.models.config import ConfigSource


class NothingToWrite(NamedTuple):
    """The decision without a write: every charge is rejected on ``image``, and nothing is settled.

    ``late_credits`` are those to a bucket or limit that does not exist, by stored name: the amount
    that is given back, and the part of it that came through children. They count as usage, although
    the absent bucket or limit is full.
    """

    image: BucketImage
    shard: Shard = WHOLE
    late_credits: Mapping[str, tuple[int, int]] = {}


class ReadFirst:
    """The bucket has to be read before anything can be decided."""

    __slots__ = ()


READ_FIRST = ReadFirst()
Step = PlannedWrite | NothingToWrite | ReadFirst | ShardMerged | StaleLimits


def plan(
    known: KnownBucket,
    changes: Sequence[BucketChange],
    context: WriteContext,
    link: EntityLink,
) -> Step:
    """Return the next step for changes that can share a write; the first one leads.

    ``link`` is that of the entity; it is used only where the bucket is not known.
    """
    bucket = known.bucket
    if bucket is None:
        return _without_bucket(known, changes, context, link)
    whole = changes[0].in_force
    in_force = whole.at(bucket.shard)
    if len(changes) == 1 and _is_usual(known, bucket, changes[0], in_force):
        return _usual_charge(known, bucket, changes[0], in_force, context)
    charges = [change for change in changes if change.is_charge]
    if charges and not known.is_fresh and is_paused(bucket.image, context.now_ms):
        return READ_FIRST  # the store would admit charges that require the digest of the pause
    if charges and not holds_limits(bucket, in_force):
        return _other_limits(bucket, charges, whole, context)
    if len(charges) < len(changes) and (missing := _missing_limits(bucket.image, changes)):
        if not known.is_fresh:
            return READ_FIRST
        owed = {key for key, amount in missing.items() if amount > 0}
        if owed:
            target = _with_limits(bucket.image, owed, in_force, context.now_ms)
            return writes.rebase(bucket, target, whole, context)
    return _with_bucket(known, bucket, changes, in_force, context)


def _is_usual(
    known: KnownBucket, bucket: StoredBucket, change: BucketChange, in_force: InForce
) -> bool:
    """Tell whether a change is a charge of tokens to a cached bucket that is not paused."""
    return (
        change.must_fit
        and change.until_ms is None
        and not known.is_fresh
        and bucket.image.holds is None
        and not in_force.has_terms
        and bucket.image.paused_until_ms is None
        and holds_limits(bucket, in_force)
    )


def _usual_charge(
    known: KnownBucket,
    bucket: StoredBucket,
    change: BucketChange,
    in_force: InForce,
    context: WriteContext,
) -> PlannedWrite:
    """Plan the usual charge, without the sums that only a group needs.

    This is a short cut: the general path plans the same write. The charge is sent even if it does
    not seem to fit: the entry may be outdated, and the store decides.
    """
    wanted = {key: Wanted.charge(amount) for key, amount in change.amounts_milli.items()}
    through_milli = through_children([change]) if change.through_child else {}
    carried = CarriedChanges([0], wanted, change.admitted, through_milli)
    carried.elsewhere = change.elsewhere
    return writes.balance_write(known, bucket, carried, in_force, context)


def _other_limits(
    bucket: StoredBucket, charges: Sequence[BucketChange], whole: InForce, context: WriteContext
) -> Step:
    """Bring the bucket to the limits in force, unless the bucket's own limits may be newer."""
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
    in_force, now_ms = changes[0].in_force, context.now_ms
    full = full_bucket(in_force, now_ms)
    if not known.is_fresh and any(change.held_quotas for change in changes):
        return READ_FIRST
    positions, slots = select(changes, full, now_ms), None
    if full.holds is not None:  # no slots are held: those that are to be released have expired
        slots = PlannedSlots(full, [], now_ms)
        slots.take(changes, positions)
    quotas = None
    settled = [change for change in changes if not change.is_charge]
    # Nothing is held in a new bucket: quotas that are settled count as usage beside it.
    changes = [replace(change, quotas=(), renewed_quotas=()) for change in changes]
    if in_force.quota_keys:
        quotas = PlannedQuotas(full, changes, now_ms)
        quotas.take(positions)
    carried = CarriedChanges.of(changes, positions, full, now_ms, slots, quotas)
    is_count = all(change.is_count for change in changes)
    creates = is_count and known.is_fresh and not context.tally.is_empty
    creates = creates or carried.has_charge
    if creates or any(each.taken_milli or each.asked for each in carried.wanted.values()):
        write = writes.first(in_force, carried, link, context)
        late = _late_quotas(settled)
        return replace(write, late_credits=late) if late else write
    if known.is_fresh:
        return NothingToWrite(full, late_credits=_late_credits(settled))
    if (
        is_count
        or in_force.has_terms
        or any(
            change.is_charge or change.through_child or change.holds_anything for change in changes
        )
    ):
        # Slots and usage are counted under indexes that only the item has, and it alone tells
        # whether a soft rate has become a quota.
        return READ_FIRST
    return writes.credit(carried, context, in_force.keys)


def _late_credits(given: Sequence[BucketChange]) -> dict[str, tuple[int, int]]:
    """Return the credits to absent limits by stored name, and their parts through children."""
    if not given:
        return {}
    through = through_children(given)
    credits_of_rates = {
        key: (each.net_milli, through.get(key, 0)) for key, each in total(given).items()
    }
    return {**credits_of_rates, **_late_quotas(given)}


def _late_quotas(given: Sequence[BucketChange]) -> dict[str, tuple[int, int]]:
    """Return the usage of settlements of quotas that do not exist any more."""
    changes: dict[str, tuple[int, int]] = {}
    for change in given:
        for each in change.quotas:
            units, of_children = changes.get(each.hold.key, (0, 0))
            late = each.late_usage
            of_child = late if each.hold.through_child else 0
            changes[each.hold.key] = units + late, of_children + of_child
    return {key: units for key, units in changes.items() if any(units)}


def _with_bucket(
    known: KnownBucket,
    bucket: StoredBucket,
    changes: Sequence[BucketChange],
    in_force: InForce,
    context: WriteContext,
) -> Step:
    """Plan for a known bucket that has the limits in force."""
    image, slots = bucket.image, None
    if image.holds is not None:
        slots = PlannedSlots(image, changes, context.now_ms)
        if slots.is_doubtful and not known.is_fresh:
            return READ_FIRST
        image = slots.image
    elif not known.is_fresh and any(change.held_slots for change in changes):
        return READ_FIRST
    quotas = None
    if in_force.quota_keys or any(change.held_quotas for change in changes):
        quotas = PlannedQuotas(image, changes, context.now_ms)
        if (quotas.is_doubtful or quotas.has_lost) and not known.is_fresh:
            return READ_FIRST
        image = quotas.image
    if len(changes) == 1 and not known.is_fresh:
        positions = [0]  # the entry may be outdated: the store decides whether the change fits
    else:
        positions = select(changes, image, context.now_ms)
    if not positions:
        if known.is_fresh:
            return NothingToWrite(image, bucket.shard)
        positions = [0]
    if bucket.shard.n > 1:
        positions = _without_hidden_spills(changes, positions)
    if slots is not None:
        slots.take(changes, positions)
    if quotas is not None:
        quotas.take(positions)
    carried = CarriedChanges.of(changes, positions, image, context.now_ms, slots, quotas)
    dropped = [changes[position].to_absent_limits(image) for position in positions]
    late_credits = _late_credits([change for change in dropped if change is not None])
    is_sure = known.is_fresh or all(change.is_count for change in changes)
    changes_nothing = not carried.wanted and not carried.admitted and not (slots and slots.writes())
    changes_nothing = changes_nothing and not (quotas and (quotas.writes() or quotas.moves()))
    if is_sure and changes_nothing and context.tally.is_empty:
        return NothingToWrite(image, bucket.shard, late_credits)
    write = writes.balance_write(known, bucket, carried, in_force, context)
    return replace(write, late_credits=late_credits) if late_credits else write


def _without_hidden_spills(changes: Sequence[BucketChange], taken: list[int]) -> list[int]:
    """Write credits apart from charges and debts of the same limits.

    Credits that a shard has no room for are spilled to the other shards, and only a write that
    takes nothing shows their amount.
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


def _missing_limits(image: BucketImage, changes: Sequence[BucketChange]) -> dict[str, int]:
    """Return the largest debt, or else credit, to each limit that the bucket does not have.

    It is 0 for a limit that is of another kind by now: what is settled of it is usage alone.
    """
    missing: dict[str, int] = {}
    for change in changes:
        if not change.is_charge:
            for key, amount in change.amounts_milli.items():
                if key not in image.limits:
                    missing[key] = max(amount, missing.get(key, amount))
                elif change.is_absent(image, key):
                    missing[key] = 0
    return missing


def _with_limits(
    image: BucketImage, missing: set[str], in_force: InForce, now_ms: int
) -> BucketImage:
    added = {key: full_limit(in_force.rate_of(key), now_ms, image.writes) for key in missing}
    return image._replace(limits={**image.limits, **added})


def _may_be_outdated(image: BucketImage, in_force: InForce) -> bool:
    """Tell whether the limits in force may be older than those of the bucket.

    Both were not read at one moment, so an equal version says nothing about their age. Limits of
    a call are never outdated.
    """
    if in_force.source is ConfigSource.OVERRIDE:
        return is_newer(image, in_force)
    return image.config_version >= in_force.version > 0 or is_newer(image, in_force)
