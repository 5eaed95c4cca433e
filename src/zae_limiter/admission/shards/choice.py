"""Which shard is asked first, and which next if that one refuses."""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate

from zae_limiter.admission.shards.tree import Shard


def order(fitting: Collection[Shard], doubtful: Collection[Shard], chance: float) -> list[Shard]:
    """Those that seem to hold what is wanted, then those of which too little is known.

    Larger shares come first more often, as they refill faster. Shards that were just seen to
    hold too little are not to be asked at all. ``chance`` is a random number from 0 to below 1.
    """
    first, chance = _shuffled(sorted(fitting), chance)
    then, _ = _shuffled(sorted(doubtful), chance)
    return first + then


def _shuffled(shards: list[Shard], chance: float) -> tuple[list[Shard], float]:
    """Drawn one by one by their weight; what is left of the chance."""
    drawn = []
    while shards:
        finest = max(shard.n for shard in shards)
        weights = [finest // shard.n for shard in shards]
        ends = list(accumulate(weights))
        spot = chance * ends[-1]
        position = next((at for at, end in enumerate(ends) if spot < end), len(shards) - 1)
        begin = ends[position] - weights[position]
        chance = min(max((spot - begin) / weights[position], 0.0), 1 - 2**-53)
        drawn.append(shards.pop(position))
    return drawn, chance
