"""The write rate of a shard, which decides on splits and merges.

Every write increments a counter in the item. So a client that reads the item twice knows the write
rate of all clients together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, is_split
from zae_limiter.admission.shards.split_merge import halved
from zae_limiter.admission.shards.tree import Shard, pairs
from zae_limiter.models.timestamps import MILLI

SPLIT_PER_S = 800  # below the 1000 writes a second that a DynamoDB partition takes
QUIET_PER_S = SPLIT_PER_S // 4  # two such siblings merge into a shard with half of SPLIT_PER_S
BUSY_PER_S = 10  # an item that is written more slowly than this cannot be the cause of throttling
QUIET_MS = 10 * 60 * 1000  # longer than lulls in traffic, since each split and merge costs writes
WINDOW_MS = 1000  # in a shorter window a burst would look like a high rate
RECENT_MS = 60_000  # an older observation does not prove that a shard is quiet now


class Pressure(NamedTuple):
    """The write rate of a shard, as this client has observed it.

    ``writes`` is the count of writes at ``at_ms``, and ``per_s`` is the rate over the last full
    window. ``quiet_since_ms`` is the last moment at which the rate was above ``QUIET_PER_S``, or
    the moment of the first observation. ``is_high`` says that the rate calls for a split.
    """

    shard: Shard
    writes: int
    at_ms: int
    quiet_since_ms: int
    per_s: int = 0
    is_high: bool = False


def observed(before: Pressure | None, shard: Shard, writes: int, now_ms: int) -> Pressure:
    """Add an observation. The first one, and the first after a split or merge, starts anew."""
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
    """Tell whether to split a shard: it is too busy or throttled, and halves would be useful."""
    hot = pressure.is_high or (throttled and pressure.per_s >= BUSY_PER_S)
    return hot and 2 * pressure.shard.n <= max_shards and has_useful_halves(image)


def has_useful_halves(image: BucketImage) -> bool:
    """Tell whether half a shard still holds twice the average charge.

    With smaller shards, most charges would have to be gathered from several shards, which is more
    work for each of them. ``image`` has the shard's own rates.
    """
    admitted = max(1, image.admitted - image.admitted_counted)  # in the running hour
    for state in image.limits.values():
        if not is_split(state.rate):  # one shard has all of it, so every call goes to that shard
            return False
        average = (state.consumed_milli - state.counted_milli) // admitted
        if halved(state.rate)[1].capacity_milli < 2 * max(MILLI, average):
            return False
    return True


def seem_mergeable(pressures: Mapping[Shard, Pressure], now_ms: int) -> list[Shard]:
    """Return the surviving shards of merges that seem possible.

    Both siblings were quiet when they were last seen. The observations may be old: read the shards,
    then ask ``mergeable``.
    """
    quiet = [
        shard
        for shard, seen in pressures.items()
        if seen.shard == shard and now_ms - seen.quiet_since_ms >= QUIET_MS
    ]
    return pairs(quiet)


def mergeable(pressures: Mapping[Shard, Pressure], now_ms: int) -> list[Shard]:
    """Return the surviving shards of merges of siblings that have both been quiet until now."""
    quiet = [
        shard
        for shard, seen in pressures.items()
        if seen.shard == shard
        and now_ms - seen.at_ms <= RECENT_MS
        and seen.at_ms - seen.quiet_since_ms >= QUIET_MS
    ]
    return pairs(quiet)
