"""One write that is about to be tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from zae_limiter.records.dynamodb.bucket_item import StoredBucket
from zae_limiter.records.dynamodb.bucket_writes import require_last
from zae_limiter.records.dynamodb.update import Update


class Attempt(NamedTuple):
    """A write, and how to repeat it if nobody knows whether it was carried out.

    ``operation`` is the mark it leaves on the item, ``before`` the mark it found there. ``again``
    makes the guarded repetition; None for writes that must not be repeated.
    """

    update: Update
    operation: str
    before: str | None = None
    again: Callable[[], Update] | None = None
    structural: bool = False
    branches: Mapping[str, int] = {}  # how limits were guessed to stand, for the counters


def repeatable(update: Update, operation: str, before: str) -> Attempt:
    """It may be repeated as long as nobody has written since ``before``."""

    def again() -> Update:
        require_last(update, before)
        return update

    return Attempt(update, operation, before, again)


def structural(update: Update, operation: str, bucket: StoredBucket) -> Attempt:
    """It counts the generation up, so that a repetition finds itself out."""
    return Attempt(update, operation, bucket.operation, lambda: update, structural=True)
