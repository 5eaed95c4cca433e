"""Requests on their way: the ids that they leave on an item, and the ways that they may go.

An item carries the id of its last write and of the three writes before it. A write is refused if
the item shows its id, so a request that is delivered twice is carried out once, unless more than
three other writes come between the two deliveries. That is the limit of the protocol, and the
bounds of the models stay within it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

EARLIER = 3  # ids that an item keeps besides that of its last write


class WriteIds(NamedTuple):
    """The ids that an item shows; the earlier ones are the newest first."""

    last: int = 0
    earlier: tuple[int, ...] = ()

    def shows(self, op: int) -> bool:
        """Tell whether the item was written under this id, up to three writes ago."""
        return op == self.last or op in self.earlier

    def after(self, op: int) -> WriteIds:
        """Return the ids after another write."""
        return WriteIds(op, (self.last, *self.earlier)[:EARLIER])


class Heard(Enum):
    """The end of a request, as its client hears it."""

    ANSWER = "answered"
    NOTHING_YET = "not yet answered"
    SILENCE = "never answered"
    ERROR = "answered by an error"  # a 500: the request is not on its way any more
    CLOSED = "on a connection that was closed while idle"


class Way(NamedTuple):
    """One way that a request may go.

    It ``arrives`` at the store now, or later. It ``stays`` on its way because it is late, or
    because a copy of it follows.
    """

    heard: Heard
    arrives: bool = True
    stays: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether the answer does not reach the client."""
        return self.heard not in (Heard.ANSWER, Heard.NOTHING_YET)

    @property
    def is_copied(self) -> bool:
        """Whether the request is delivered, and delivered again."""
        return self.arrives and self.stays

    def __str__(self) -> str:
        late = "" if self.arrives else " and late"
        return self.heard.value + late + (" and copied" if self.is_copied else "")


ANSWERED = Way(Heard.ANSWER)
LOST = (Way(Heard.SILENCE), Way(Heard.ERROR), Way(Heard.CLOSED))
LATE = (Way(Heard.SILENCE, False, True), Way(Heard.CLOSED, False, True))
# The answer to the first delivery may be lost on the way, so that the client hears the second one.
COPIED = (Way(Heard.ANSWER, stays=True), Way(Heard.NOTHING_YET, stays=True))
COPIED_AND_LOST = tuple([way._replace(stays=True) for way in LOST])


class Faults(NamedTuple):
    """Numbers of answers that are lost, and of requests that are delivered twice."""

    lost: int = 0
    copied: int = 0

    def after(self, way: Way) -> Faults:
        return Faults(self.lost + way.is_lost, self.copied + way.is_copied)


def ways(so_far: Faults, most: Faults, *, is_awaited: bool) -> Iterator[Way]:
    """Yield the ways that a request may go, with at most so many faults in one history.

    If nobody waits for the answer, it does not matter what is heard.
    """
    may_lose = is_awaited and so_far.lost < most.lost
    may_copy = so_far.copied < most.copied
    yield ANSWERED
    if may_lose:
        yield from LOST
        yield from LATE
    if may_copy:
        yield from COPIED if is_awaited else COPIED[:1]
    if may_lose and may_copy:
        yield from COPIED_AND_LOST
