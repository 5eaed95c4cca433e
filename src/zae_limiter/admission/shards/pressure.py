"""How fast a shard is written to, and when that calls for a split or allows a merge.

Every write counts itself in the item, so whoever sees the item now and then knows the rate of all
clients together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.shards.division import halved
from zae_limiter.admission.shards.tree import Shard, pairs
from zae_limiter.models.limit import MILLI

SPLIT_PER_S = 800  # a partition takes 1000 writes a second
CALM_PER_S = SPLIT_PER_S // 4
BUSY_PER_S = 10  # who is written to less is not what the store is short of
CALM_MS = 10 * 60 * 1000
WINDOW_MS = 1000  # a rate is told from no less
RECENT_MS = 60_000
MAX_SHARDS = 32


class Pressure(NamedTuple):
    """What was seen of a shard's count of writes.

    ``per_s`` is the rate over the last full window; ``calm_since_ms`` when it was last known to
    be high, or when the shard was first seen.
    """

    shard: Shard
    writes: int
    at_ms: int
    calm_since_ms: int
    per_s: int = 0

    @property
    def is_high(self) -> bool:
        return self.per_s > SPLIT_PER_S


def observed(before: Pressure | None, shard: Shard, writes: int, now_ms: int) -> Pressure:
    """Take note of a shard's count; it begins anew when the shard was split, merged or made."""
    if before is None or before.shard != shard or writes < before.writes:
        return Pressure(shard, writes, now_ms, now_ms)
    elapsed_ms = now_ms - before.at_ms
    if elapsed_ms < WINDOW_MS:
        return before
    per_s = (writes - before.writes) * 1000 // elapsed_ms
    calm_since_ms = before.calm_since_ms if per_s < CALM_PER_S else now_ms
    return Pressure(shard, writes, now_ms, calm_since_ms, per_s)


def wants_split(
    pressure: Pressure, image: BucketImage, max_shards: int = MAX_SHARDS, *, throttled: bool = False
) -> bool:
    """Whether a shard is written to too fast, or the store says so, and halves would be of use."""
    hot = pressure.is_high or (throttled and pressure.per_s >= BUSY_PER_S)
    return hot and 2 * pressure.shard.n <= max_shards and has_useful_halves(image)


def has_useful_halves(image: BucketImage) -> bool:
    """Whether half a shard still holds what is usually taken at once, twice over.

    If not, most charges would have to be gathered from several shards, which is more work for
    every one of them. ``image`` is at the shard's own rates.
    """
    admitted = max(1, image.admitted)
    return all(
        halved(state.rate)[1].capacity_milli >= 2 * max(MILLI, state.consumed_milli // admitted)
        for state in image.limits.values()
    )


def seem_mergeable(pressures: Mapping[Shard, Pressure], now_ms: int) -> list[Shard]:
    """Those that seem to have been calm for long, as their siblings do; they would survive.

    To be told for sure they have to be looked at: see ``mergeable``.
    """
    calm = [
        shard
        for shard, seen in pressures.items()
        if seen.shard == shard and now_ms - seen.calm_since_ms >= CALM_MS
    ]
    return pairs(calm)


def mergeable(pressures: Mapping[Shard, Pressure], now_ms: int) -> list[Shard]:
    """Those that have been calm for long, as seen a moment ago, and whose sibling has, too."""
    calm = [
        shard
        for shard, seen in pressures.items()
        if seen.shard == shard
        and now_ms - seen.at_ms <= RECENT_MS
        and seen.at_ms - seen.calm_since_ms >= CALM_MS
    ]
    return pairs(calm)
