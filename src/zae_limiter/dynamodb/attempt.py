"""One write that is about to be tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from zae_limiter.records.dynamodb.attributes import Item
from zae_limiter.records.dynamodb.bucket_item import StoredBucket
from zae_limiter.records.dynamodb.update import Update

ALONE = (0,)  # the part of the one who writes, a charge


class Spelled(Protocol):
    """What can be sent."""

    @property
    def key(self) -> Item: ...

    def text(self, table: str) -> str: ...


class Attempt(NamedTuple):
    """A write, and how to repeat it if nobody knows whether it was carried out.

    ``operation`` is the mark it leaves on the item, ``before`` the mark it found there. ``again``
    makes the guarded repetition; None for writes that must not be repeated. ``taken`` says by
    position whose parts it makes, none if it only prepares the bucket for them, and ``net_milli``
    what it takes from each limit.
    """

    write: Spelled
    operation: str
    before: str | None = None
    again: Callable[[], Update] | None = None
    structural: bool = False
    plain_moves: int = 0  # how limits were guessed to stand, for the counters
    clamp_moves: int = 0
    taken: Sequence[int] = ()
    net_milli: Mapping[str, int] = {}


def structural(update: Update, operation: str, bucket: StoredBucket) -> Attempt:
    """It counts the generation up, so that a repetition finds itself out."""
    return Attempt(update, operation, bucket.operation, lambda: update, structural=True)
