"""Which shards a bucket has, as far as this client has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.admission.shards.tree import WHOLE, Shard, contradicts, latest, live


class Layout(NamedTuple):
    """Generations of the shards that were seen, and all shards that there must be, then."""

    seen: Mapping[Shard, int]
    live: tuple[Shard, ...]

    @classmethod
    def of(cls, seen: Mapping[Shard, int]) -> Layout:
        return cls(seen, tuple(live(seen)))

    @property
    def is_split(self) -> bool:
        return any(shard != WHOLE for shard in self.seen)

    def with_seen(self, shard: Shard, generation: int) -> Layout:
        """What can still be true once a shard was seen: of two that contradict, the later one.

        Of one number there is one item, and it is as it was seen last.
        """
        if self.seen.get(shard) == generation:
            return self
        found = {each: its for each, its in self.seen.items() if each.number != shard.number}
        found[shard] = generation
        return Layout.of({each: found[each] for each in latest(found)})

    def without(self, number: int) -> Layout:
        """What can still be true once a shard was missed: it was merged, or all are gone."""
        if number == 0:
            return UNKNOWN
        return Layout.of(
            {
                shard: generation
                for shard, generation in self.seen.items()
                if shard.number != number and not contradicts(shard, number)
            }
        )


UNKNOWN = Layout.of({})
