"""A part on its way into a write, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from zae_limiter.admission.image import BucketImage, level_milli
from zae_limiter.admission.moves import surplus_milli
from zae_limiter.admission.request import StaleLimits
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.clock import Clock
from zae_limiter.dynamodb.part import Part
from zae_limiter.dynamodb.view import Place, Spot
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.records.dynamodb.bucket_item import StoredBucket
from zae_limiter.transport.deadline import Deadline


class Written(NamedTuple):
    """It stands; the bucket or shard after the write.

    ``spilled_milli`` is what a shard could not hold of a credit, ``is_short`` that it is in debt:
    both are for the other shards to make up for.
    """

    image: BucketImage | None
    spilled_milli: Mapping[str, int] = {}
    is_short: bool = False


class Refused(NamedTuple):
    """It does not fit into the bucket or shard as it stood at the stamp."""

    image: BucketImage
    now_ms: int
    shard: Shard = WHOLE


class Gone:
    """Nothing was written: the shard was merged into another one."""

    __slots__ = ()


GONE = Gone()
Outcome = Written | Refused | Gone | StaleLimits | ZAELimiterError


def written(parts: Sequence[Part], bucket: StoredBucket, now_ms: int) -> list[Written]:
    """What became of parts that were written together, given the item after it."""
    image = bucket.image
    if bucket.shard.n == 1:
        return [Written(image)] * len(parts)
    over = {key: max(0, surplus_milli(state, now_ms)) for key, state in image.limits.items()}
    short = {key for key, state in image.limits.items() if level_milli(state, now_ms) < 0}
    found = []
    for part in parts:
        spilled = {} if part.is_charge else _spilled(part, over)
        is_short = any(amount > 0 and key in short for key, amount in part.amounts_milli.items())
        if is_short:
            short = set()  # one makes up for all
        found.append(Written(image, spilled, is_short))
    return found


def _spilled(part: Part, over: dict[str, int]) -> dict[str, int]:
    """What ran over of a part's credits; the next part sees what is left."""
    spilled = {}
    for key, amount in part.amounts_milli.items():
        lost = min(-amount, over.get(key, 0))
        if lost > 0:
            spilled[key] = lost
            over[key] -= lost
    return spilled


class Wakeable(Protocol):
    def wake(self) -> bool: ...


class Member:
    """``outcome`` is None until it is decided. Woken without one, it is its turn to write."""

    __slots__ = (
        "clock",
        "counted",
        "deadline",
        "look_first",
        "outcome",
        "part",
        "place",
        "spot",
        "waiter",
    )

    def __init__(
        self,
        place: Place,
        part: Part,
        clock: Clock,
        deadline: Deadline,
        *,
        look_first: bool = False,
    ) -> None:
        self.place = place
        self.spot: Spot = (*place, 0)
        self.part = part
        self.clock = clock
        self.deadline = deadline
        self.waiter: Wakeable | None = None
        self.look_first = look_first
        self.counted = True  # as something that a caller has asked for
        self.outcome: Outcome | None = None

    def turn_to(self, number: int) -> None:
        """Ask another shard."""
        self.spot = (*self.place, number)
        self.outcome = None
        self.waiter = None

    def wake(self) -> bool:
        """Its turn has come, one way or the other; False if nobody is there any more."""
        return self.waiter is not None and self.waiter.wake()

    def goes_with(self, leader: Member) -> bool:
        """Whether one write may be for both."""
        return (
            self.clock is leader.clock
            and self.look_first == leader.look_first
            and self.part.goes_with(leader.part)
        )
