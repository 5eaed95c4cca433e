"""Which shard is asked."""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate

from zae_limiter.admission.shards.tree import Shard


def draw(shards: Collection[Shard], chance: float) -> Shard:
    """One of them; larger shares come up more often, as they refill faster.

    ``chance`` is a random number from 0 to below 1.
    """
    listed = sorted(shards)
    finest = max(shard.n for shard in listed)
    ends = list(accumulate(finest // shard.n for shard in listed))
    spot = chance * ends[-1]
    return next((shard for shard, end in zip(listed, ends, strict=True) if spot < end), listed[-1])
