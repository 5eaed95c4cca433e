"""The plan of the next step for the changes of a group, given the bucket as it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.admission.decide import decide, is_absent, late_amounts, with_owed_limits
from zae_limiter.admission.image import BucketImage, is_paused
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Seen
from zae_limiter.admission.rebase import is_newer, rebase
from zae_limiter.admission.request import BucketChange, StaleLimits
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.admission.slots import swept
from zae_limiter.items.buckets import writes
from zae_limiter.items.buckets.cache import KnownBucket, holds_limits
from zae_limiter.items.buckets.outcomes import SHARD_MERGED, ShardMerged
from zae_limiter.items.buckets.writes import PlannedWrite, WriteContext
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
    charges = [change for change in changes if change.is_charge]
    if charges and not known.is_fresh and is_paused(bucket.image, context.now_ms):
        return READ_FIRST  # the store would admit charges that require the digest of the pause
    if charges and not holds_limits(bucket, in_force):
        return _other_limits(bucket, charges, whole, context)
    if len(charges) < len(changes):
        if not known.is_fresh and _lacks_limits(bucket.image, changes):
            return READ_FIRST
        target = with_owed_limits(bucket.image, changes, in_force, context.now_ms)
        if target is not bucket.image:
            return writes.rebase(bucket, target, whole, context)
    return _with_bucket(known, bucket, changes, in_force, context)


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
    in_force = changes[0].in_force
    if not known.is_fresh and any(change.held_quotas for change in changes):
        return READ_FIRST
    decision = decide(None, changes, context.now_ms)
    is_count = all(change.is_count for change in changes)
    creates = is_count and known.is_fresh and not context.tally.is_empty
    if creates or decision.has_charge or decision.has_debt:
        return writes.first(in_force, decision, link, context)
    if known.is_fresh:
        settled = [change for change in changes if not change.is_charge]
        return NothingToWrite(decision.image, late_credits=late_amounts(settled))
    if (
        is_count
        or in_force.has_terms
        or any(
            change.is_charge or change.through_child or change.held_slots or change.held_quotas
            for change in changes
        )
    ):
        # Slots and usage are counted under indexes that only the item has, and it alone tells
        # whether a soft rate has become a quota.
        return READ_FIRST
    return writes.credit(decision, context, in_force.keys)


def _with_bucket(
    known: KnownBucket,
    bucket: StoredBucket,
    changes: Sequence[BucketChange],
    in_force: InForce,
    context: WriteContext,
) -> Step:
    """Plan for a known bucket that has the limits in force."""
    image, now_ms, guess = bucket.image, context.now_ms, None
    if not known.is_fresh:
        guess = Seen(now_ms - known.at_ms, known.others_milli_per_s)
    decision = decide(image, changes, now_ms, guess, apart=bucket.shard.n > 1)
    if decision.is_doubtful and guess is not None:
        return READ_FIRST
    if not decision.carried:
        return NothingToWrite(swept(image, now_ms), bucket.shard)
    if decision.is_empty and context.tally.is_empty and _is_sure(changes, guess):
        return NothingToWrite(swept(image, now_ms), bucket.shard, decision.late)
    return writes.balance_write(known, bucket, decision, in_force, context)


def _is_sure(changes: Sequence[BucketChange], guess: Seen | None) -> bool:
    """Tell whether a write that would change nothing need not be sent to be certain of that."""
    return guess is None or all(change.is_count for change in changes)


def _lacks_limits(image: BucketImage, changes: Sequence[BucketChange]) -> bool:
    """Tell whether a settlement is of a limit that is missing, or of another kind by now."""
    return any(
        is_absent(image, key, change)
        for change in changes
        if not change.is_charge
        for key in change.amounts_milli
    )


def _may_be_outdated(image: BucketImage, in_force: InForce) -> bool:
    """Tell whether the limits in force may be older than those of the bucket.

    Both were not read at one moment, so an equal version says nothing about their age. Limits of
    a call are never outdated.
    """
    if in_force.source is ConfigSource.OVERRIDE:
        return is_newer(image, in_force)
    return image.config_version >= in_force.version > 0 or is_newer(image, in_force)
