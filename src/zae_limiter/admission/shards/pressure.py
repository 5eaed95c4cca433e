"""The write rate of a shard, and when it calls for a split or allows a merge.

Every write counts itself in the item, so a client that reads the item twice knows the rate of all
clients together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, is_slots
from zae_limiter.admission.shards.split_merge import halved
from zae_limiter.admission.shards.tree import Shard, pairs
from zae_limiter.models.timestamps import MILLI

SPLIT_PER_S = 800  # a DynamoDB partition takes 1000 writes a second: split before that
QUIET_PER_S = SPLIT_PER_S // 4  # two siblings at this rate merge into one that is not split soon
BUSY_PER_S = 10  # below this rate the item cannot be the cause of throttling: do not split it
QUIET_MS = 10 * 60 * 1000  # longer than pauses in traffic: each split and merge costs writes
WINDOW_MS = 1000  # shorter windows would take a burst for a rate
RECENT_MS = 60_000  # an older observation does not say that a shard is quiet now


class Pressure(NamedTuple):
    """The write rate of a shard, as this client has observed it.

    ``writes`` is the count at ``at_ms``, ``per_s`` the rate over the last full window,
    ``quiet_since_ms`` when it was last above ``QUIET_PER_S``, or when the shard was first seen.
    ``is_high`` says that the shard should be split; a field, since every acquire asks for it.
    """

    shard: Shard
    writes: int
    at_ms: int
    quiet_since_ms: int
    per_s: int = 0
    is_high: bool = False


def observed(before: Pressure | None, shard: Shard, writes: int, now_ms: int) -> Pressure:
    """Add an observation; it starts again after a split or merge, and for a new item."""
    if before is None or before.shard != shard or writes < before.writes:
        return Pressure(shard, writes, now_ms, now_ms)
    elapsed_ms = now_ms - before.at_ms
    if elapsed_ms < WINDOW_MS:
        return before
    per_s = (writes - before.writes) * 1000 // elapsed_ms
    quiet_since_ms = before.quiet_since_ms if per_s < QUIET_PER_S else now_ms
    return Pressure(shard, writes, now_ms, quiet_since_ms, per_s, per_s > SPLIT_PER_S)


def wants_split(
    pressure: Pressure, image: BucketImage, max_shards: int, *, throttled: bool = False
) -> bool:
    """Whether to split: the shard is too busy, or throttled, and halves would be useful."""
    hot = pressure.is_high or (throttled and pressure.per_s >= BUSY_PER_S)
    return hot and 2 * pressure.shard.n <= max_shards and has_useful_halves(image)


def has_useful_halves(image: BucketImage) -> bool:
    """Whether half a shard still holds twice the average charge.

    If not, most charges would have to be gathered from several shards, which is more work for
    each of these. ``image`` is at the shard's own rates.
    """
    admitted = max(1, image.admitted - image.admitted_counted)  # in the running hour
    for state in image.limits.values():
        if is_slots(state.rate):  # all of them are in one shard, so all calls go there
            return False
        average = (state.consumed_milli - state.counted_milli) // admitted
        if halved(state.rate)[1].capacity_milli < 2 * max(MILLI, average):
            return False
    return True


def seem_mergeable(pressures: Mapping[Shard, Pressure], now_ms: int) -> list[Shard]:
    """Return the survivors of merges that seem possible: both siblings were quiet when last seen.

    The observations may be old: read the shards, then ask ``mergeable``.
    """
    quiet = [
        shard
        for shard, seen in pressures.items()
        if seen.shard == shard and now_ms - seen.quiet_since_ms >= QUIET_MS
    ]
    return pairs(quiet)


def mergeable(pressures: Mapping[Shard, Pressure], now_ms: int) -> list[Shard]:
    """Return the survivors of merges of siblings that both have been quiet until just now."""
    quiet = [
        shard
        for shard, seen in pressures.items()
        if seen.shard == shard
        and now_ms - seen.at_ms <= RECENT_MS
        and seen.at_ms - seen.quiet_since_ms >= QUIET_MS
    ]
    return pairs(quiet)
