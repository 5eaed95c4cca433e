"""What to write next to a bucket, for one caller or for several, given what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import fresh, full, is_newer, rebase
from zae_limiter.admission.request import STALE, StaleLimits
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.dynamodb import writes
from zae_limiter.dynamodb.attempt import Attempt
from zae_limiter.dynamodb.member import GONE, Gone
from zae_limiter.dynamodb.part import Part, choose, fits_alone, total
from zae_limiter.dynamodb.view import View, is_governed
from zae_limiter.dynamodb.writes import Terms
from zae_limiter.models.config import ConfigSource
from zae_limiter.records.dynamodb.bucket_item import Family, StoredBucket


class Over(NamedTuple):
    """Nothing is to be written: charges do not fit into ``seen``, and nothing is left to settle."""

    seen: BucketImage
    shard: Shard = WHOLE


class Look:
    """The bucket has to be read before anything can be said."""

    __slots__ = ()


LOOK = Look()
Step = Attempt | Over | Look | Gone | StaleLimits


def plan(view: View, parts: Sequence[Part], terms: Terms, family: Family) -> Step:
    """The next step for parts that go together; the first one leads."""
    bucket = view.bucket
    if bucket is None:
        return _without_bucket(view, parts, terms, family)
    whole = parts[0].in_force
    in_force = whole.at(bucket.shard)
    if len(parts) == 1 and parts[0].is_charge and is_governed(bucket, in_force):
        if view.literal and not fits_alone(parts[0], bucket.image, terms.now_ms):
            return Over(bucket.image, bucket.shard)
        # asked for even if it does not seem to fit: the bucket was seen a while ago
        return writes.charge(view, bucket, parts[0], in_force, terms)
    charges = [part for part in parts if part.is_charge]
    if charges and not is_governed(bucket, in_force):
        return _other_limits(bucket, charges, whole, terms)
    missing = _settled_and_missing(bucket.image, parts)
    if missing and not view.literal:
        return LOOK
    owed = {key for key, amount in missing.items() if amount > 0}
    if owed:
        return writes.rebased(bucket, _with(bucket.image, owed, in_force, terms), whole, terms)
    return _with_bucket(view, bucket, parts, in_force, terms)


def _other_limits(
    bucket: StoredBucket, charges: Sequence[Part], whole: InForce, terms: Terms
) -> Step:
    """Bring the bucket to the limits in force, unless its own are newer."""
    image, in_force = bucket.image, whole.at(bucket.shard)
    if _may_be_outdated(image, in_force) and not any(part.refreshed for part in charges):
        return STALE
    target = rebase(image, in_force, terms.now_ms)
    return writes.rebased(bucket, target, whole, terms)


def _without_bucket(view: View, parts: Sequence[Part], terms: Terms, family: Family) -> Step:
    """An absent bucket is full; one that is not known may be there all the same.

    Shards other than the first are only made by splitting.
    """
    if terms.spot[3] and view.literal:
        return GONE
    if terms.spot[3]:
        return LOOK
    in_force = parts[0].in_force
    empty = fresh(in_force, terms.now_ms)
    taken = choose(parts, empty, terms.now_ms).taken
    wanted = total(parts[position] for position in taken)
    if any(each.taken_milli or each.asked for each in wanted.values()):
        admitted = sum(parts[position].admitted for position in taken)
        first = writes.first(in_force, wanted, admitted, family, terms)
        return first._replace(taken=taken)
    if view.literal:
        return Over(empty)
    if any(part.is_charge for part in parts):
        return LOOK
    credit = writes.credit(wanted, sum(part.admitted for part in parts), terms)
    return credit._replace(taken=taken)


def _with_bucket(
    view: View, bucket: StoredBucket, parts: Sequence[Part], in_force: InForce, terms: Terms
) -> Step:
    image = bucket.image
    taken = choose(parts, image, terms.now_ms).taken
    if not taken:
        if view.literal:
            return Over(image, bucket.shard)
        taken = [0]  # asked all the same: it was seen a while ago
    if bucket.shard.n > 1:
        taken = _without_hidden_spills(parts, taken)
    chosen = [parts[position].within(image) for position in taken]
    wanted = total(chosen)
    admitted = sum(part.admitted for part in chosen)
    if view.literal and not wanted and not admitted:
        return Over(image, bucket.shard)  # credits to limits that are gone
    attempt = writes.shared(view, bucket, wanted, admitted, in_force, terms)
    net = {key: each.taken_milli - each.returned_milli for key, each in wanted.items()}
    return attempt._replace(taken=taken, net_milli=net)


def _without_hidden_spills(parts: Sequence[Part], taken: list[int]) -> list[int]:
    """Credits by themselves, if others would take from the same limits.

    What a shard can not hold of them is for the other shards, and only a write that takes nothing
    shows how much that is.
    """
    if len(taken) == 1:
        return taken
    wanted = total(parts[position] for position in taken)
    if not any(each.returned_milli and each.taken_milli for each in wanted.values()):
        return taken
    pure = [position for position in taken if _only_gives(parts[position])]
    return pure or taken[:1]


def _only_gives(part: Part) -> bool:
    return all(amount <= 0 for amount in part.amounts_milli.values())


def _settled_and_missing(image: BucketImage, parts: Sequence[Part]) -> dict[str, int]:
    """The largest debt, or else credit, to each limit that the bucket does not have."""
    found: dict[str, int] = {}
    for part in parts:
        if not part.is_charge:
            for key, amount in part.amounts_milli.items():
                if key not in image.limits:
                    found[key] = max(amount, found.get(key, amount))
    return found


def _with(image: BucketImage, missing: set[str], in_force: InForce, terms: Terms) -> BucketImage:
    added = {key: full(in_force.rate_of(key), terms.now_ms) for key in missing}
    return image._replace(limits={**image.limits, **added})


def _may_be_outdated(image: BucketImage, in_force: InForce) -> bool:
    """Whether the limits in force may be older than those of the bucket.

    They were not read at one moment, so an equal version says nothing about their age. Limits
    that a call brought along are as it says.
    """
    if in_force.source is ConfigSource.OVERRIDE:
        return is_newer(image, in_force)
    return image.config_version >= in_force.version > 0 or is_newer(image, in_force)
