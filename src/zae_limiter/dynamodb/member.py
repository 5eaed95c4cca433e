"""A part on its way into a write, and what became of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import StaleLimits
from zae_limiter.clock import Clock
from zae_limiter.dynamodb.part import Part
from zae_limiter.dynamodb.view import BucketKey
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.transport.deadline import Deadline


class Written(NamedTuple):
    """It stands; the bucket after the write."""

    image: BucketImage | None


class Refused(NamedTuple):
    """It does not fit into the bucket as it stood at the stamp."""

    image: BucketImage
    now_ms: int


Outcome = Written | Refused | StaleLimits | ZAELimiterError


class Wakeable(Protocol):
    def wake(self) -> bool: ...


class Member:
    """``outcome`` is None until it is decided. Woken without one, it is its turn to write."""

    __slots__ = ("clock", "deadline", "look_first", "outcome", "part", "place", "waiter")

    def __init__(
        self,
        place: BucketKey,
        part: Part,
        clock: Clock,
        deadline: Deadline,
        *,
        look_first: bool = False,
    ) -> None:
        self.place = place
        self.part = part
        self.clock = clock
        self.deadline = deadline
        self.waiter: Wakeable | None = None
        self.look_first = look_first
        self.outcome: Outcome | None = None

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
