"""A bucket in the eyes of one request, and how its limits are guessed to stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import governs
from zae_limiter.admission.shards.pressure import Pressure
from zae_limiter.records.dynamodb.bucket_item import StoredBucket

MOST_DIGESTS = 64

Place = tuple[str, str, str]  # a bucket: namespace id, entity, resource
Spot = tuple[str, str, str, int]  # its item: the same, and the number of the shard


def first_spot(place: Place) -> Spot:
    """Where a bucket begins, and all of it unless it was split."""
    return (*place, 0)


def place_of(spot: Spot) -> Place:
    return spot[:3]


def is_governed(bucket: StoredBucket, in_force: InForce) -> bool:
    """Whether the bucket holds exactly the limits in force, which are those of its shard.

    Its digest stands for its parameters, so that is found out once for each.
    """
    if bucket.digest in in_force.digests:
        return True
    if not governs(bucket.image, in_force):
        return False
    if len(in_force.digests) >= MOST_DIGESTS:
        in_force.digests.clear()
    in_force.digests.add(bucket.digest)
    return True


class Seen(NamedTuple):
    """A bucket or shard, when it was seen, how fast others take from each of its limits,
    and how fast all write to it.
    """

    bucket: StoredBucket
    at_ms: int
    others_milli_per_s: Mapping[str, int]
    pressure: Pressure
    literal: bool = False  # see Read


class Read(NamedTuple):
    """What was read for this very request; without a bucket there is none.

    It is taken literally: nobody is thought to have taken anything since.
    """

    bucket: StoredBucket | None
    literal: bool = True
    at_ms: int = 0
    others_milli_per_s: Mapping[str, int] = {}


View = Seen | Read
UNSEEN = Read(None, literal=False)  # nothing is known of the bucket
