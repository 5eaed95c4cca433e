"""A bucket in the eyes of one request, and how its limits are guessed to stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import (
    Move,
    Wanted,
    is_overflowing,
    move,
    seems_overflowing,
)
from zae_limiter.admission.shards.pressure import Pressure
from zae_limiter.records.dynamodb.bucket_item import StoredBucket

Place = tuple[str, str, str]  # a bucket: namespace id, entity, resource
Spot = tuple[str, str, str, int]  # its item: the same, and the number of the shard


def first_spot(place: Place) -> Spot:
    """Where a bucket begins, and all of it unless it was split."""
    return (*place, 0)


def place_of(spot: Spot) -> Place:
    return spot[:3]


class Seen(NamedTuple):
    """A bucket or shard, when it was seen, how fast others take from each of its limits,
    and how fast all write to it.
    """

    bucket: StoredBucket
    at_ms: int
    others_milli_per_s: Mapping[str, int]
    pressure: Pressure


class View(NamedTuple):
    """What is known of a bucket; ``literal`` if it was read for this very request.

    Without a bucket: it is absent if literal, else nothing is known.
    """

    bucket: StoredBucket | None
    literal: bool
    at_ms: int = 0
    others_milli_per_s: Mapping[str, int] = {}

    @classmethod
    def remembered(cls, seen: Seen | None) -> View:
        if seen is None:
            return cls(None, literal=False)
        return cls(seen.bucket, False, seen.at_ms, seen.others_milli_per_s)

    def move(self, image: BucketImage, key: str, wanted: Wanted, now_ms: int) -> Move:
        """The part of a write for one limit, in the branch that is most likely right."""
        state = image.limits[key]
        if self.literal:
            overflowing = is_overflowing(state, now_ms, wanted.returned_milli)
        else:
            others = self.others_milli_per_s.get(key, 0)
            age_ms = now_ms - self.at_ms
            overflowing = seems_overflowing(state, wanted, now_ms, age_ms, others)
        return move(key, state.rate, wanted, now_ms, overflowing=overflowing)
