"""The shards of a bucket: leaves of a binary tree, each with its share of every limit.

Shard ``number`` of ``n`` refills at one n-th of the rate and holds its share of the capacity. When
it is split, it stays shard ``number``, now of ``2n``, and ``number + n`` of ``2n`` comes beside it.
So the n-ths of all live shards add up to one, and the shares to the capacity.

Where other modules of this package speak of an image, they mean one at the shard's own rates, as
``of_shard`` makes it: all that is said of a bucket then holds for the shard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, Rate


class Shard(NamedTuple):
    """One of ``n`` equal shares; ``n`` is a power of two and ``number`` below it."""

    number: int
    n: int

    @property
    def parent(self) -> Shard:
        """What it was split off, or what it remains of."""
        assert self.n > 1, "the whole has no parent"
        half = self.n // 2
        return Shard(self.number % half, half)

    @property
    def sibling(self) -> Shard:
        """The other half of the parent."""
        assert self.n > 1, "the whole has no sibling"
        return Shard(self.number ^ self.n // 2, self.n)

    @property
    def survives(self) -> bool:
        """Whether it keeps its number when it is merged with its sibling."""
        return self.number < self.n // 2

    def halves(self) -> tuple[Shard, Shard]:
        """What a split makes of it: the one that stays and the one that comes."""
        return Shard(self.number, 2 * self.n), Shard(self.number + self.n, 2 * self.n)

    def covers(self, other: Shard) -> bool:
        """Whether the other is this one or was split off it."""
        return other.n >= self.n and other.number % self.n == self.number


WHOLE = Shard(0, 1)


def share(shard: Shard, capacity_milli: int) -> int:
    """What a shard holds of a capacity: halved again and again, the odd one stays below."""
    return (capacity_milli + shard.n - 1 - shard.number) // shard.n


def effective(rate: Rate, shard: Shard) -> Rate:
    """The rate of a shard's own part of a limit."""
    capacity, refill, period = rate
    return Rate(share(shard, capacity), refill, period * shard.n)


def of_shard(image: BucketImage, shard: Shard) -> BucketImage:
    """A shard at its own rates, from an image with the parameters of the whole."""
    if shard.n == 1:
        return image
    limits = {
        key: state._replace(rate=effective(state.rate, shard))
        for key, state in image.limits.items()
    }
    return image._replace(limits=limits)


def live(known: Mapping[Shard, int]) -> list[Shard]:
    """All shards that there must be if the known ones are there, by number.

    What was never seen is thought to be as large as it can be. ``known`` tells each shard's
    generation: where two contradict each other, the later one is right, since every split and
    every merge leaves a higher generation than it finds.
    """
    leaves = latest(known)
    inner = {above for leaf in leaves for above in _above(leaf)}
    found = set(leaves) or {WHOLE}
    for node in inner:
        found.update(half for half in node.halves() if half not in inner)
    return sorted(found)


def latest(known: Mapping[Shard, int]) -> list[Shard]:
    """Those that can be there at once: of two that contradict each other, the later one."""
    leaves: list[Shard] = []
    for shard in sorted(known, key=lambda each: (-known[each], each.n)):
        if not any(leaf.covers(shard) or shard.covers(leaf) for leaf in leaves):
            leaves.append(shard)
    return leaves


def is_whole(shards: Collection[Shard]) -> bool:
    """Whether these are all shards of a bucket, none twice and none missing."""
    finest = max((shard.n for shard in shards), default=0)
    slots = [
        slot for shard in shards for slot in range(shard.number, finest, shard.n)
    ]  # at the finest grain each belongs to one shard
    return finest > 0 and sorted(slots) == list(range(finest))


def heirs(number: int) -> Iterator[int]:
    """Where something for a shard goes if it was merged: the numbers it was split off, in turn."""
    while number:
        yield number
        number = merged_into(number)
    yield 0


def merged_into(number: int) -> int:
    """The shard that is left when this one is gone: without its highest bit."""
    assert number > 0, "the first shard is never merged into another"
    return number ^ 1 << number.bit_length() - 1


def contradicts(shard: Shard, missing: int) -> bool:
    """Whether a shard can not be there if the one of that number is not: both were split off."""
    below = merged_into(missing)
    origin = Shard(below, missing - below)
    return shard != origin and origin.covers(shard)


def pairs(shards: Collection[Shard]) -> list[Shard]:
    """Those that can be merged with their sibling, as it is there, the finest first."""
    present = set(shards)
    found = [
        shard for shard in present if shard.n > 1 and shard.survives and shard.sibling in present
    ]
    return sorted(found, key=lambda shard: (-shard.n, shard.number))


def _above(shard: Shard) -> Iterator[Shard]:
    while shard.n > 1:
        shard = shard.parent
        yield shard
