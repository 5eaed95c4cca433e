"""The shards of a bucket: leaves of a binary tree, each with its share of every limit.

Shard ``number`` of ``n`` refills at one n-th of the rate and holds its share of the capacity. A
split makes it shard ``number`` of ``2n``, and creates shard ``number + n`` of ``2n``. So the n-ths
of all live shards add up to one, and their shares add up to the capacity.

In this package the image of a shard has the shard's own rates, as ``of_shard`` returns it. So all
functions about buckets work for a shard as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, Rate, is_split


class Shard(NamedTuple):
    """One of ``n`` equal shares; ``n`` is a power of two and ``number`` below it."""

    number: int
    n: int

    @property
    def parent(self) -> Shard:
        """The shard that was split into this one and its sibling."""
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
        """Tell whether the shard keeps its number when it is merged with its sibling."""
        return self.number < self.n // 2

    def halves(self) -> tuple[Shard, Shard]:
        """Return the two shards after a split: the one with the same number, and the new one."""
        return Shard(self.number, 2 * self.n), Shard(self.number + self.n, 2 * self.n)

    def covers(self, other: Shard) -> bool:
        """Tell whether the other is this shard, or came from it by splits."""
        return other.n >= self.n and other.number % self.n == self.number


WHOLE = Shard(0, 1)


def share(shard: Shard, capacity_milli: int) -> int:
    """Return a shard's share of a capacity. Lower numbers get the millitokens of the remainder."""
    return (capacity_milli + shard.n - 1 - shard.number) // shard.n


def effective(rate: Rate, shard: Shard) -> Rate:
    """Return the rate of a shard's share of a limit. The first shard has all of some limits."""
    if not is_split(rate):
        return rate._replace(capacity_milli=0) if shard.number else rate
    capacity, refill, period, terms = rate
    return Rate(share(shard, capacity), refill, period * shard.n, terms)


def of_shard(image: BucketImage, shard: Shard) -> BucketImage:
    """Return the image of a shard with its own rates, given one with the whole bucket's rates."""
    if shard.n == 1:
        return image
    limits = {
        key: replace(state, rate=effective(state.rate, shard))
        for key, state in image.limits.items()
    }
    return image._replace(limits=limits)


def live(known: Mapping[Shard, int]) -> list[Shard]:
    """Return all shards that must exist if the known ones do, sorted by number.

    Shards that were never seen are assumed to be as large as possible. ``known`` maps shards to
    generations. If two shards contradict each other, the one with the higher generation exists,
    since every split and every merge writes a higher generation than the one that it has read.
    """
    leaves = latest(known)
    inner = {above for leaf in leaves for above in _above(leaf)}
    shards = set(leaves) or {WHOLE}
    for node in inner:
        shards.update(half for half in node.halves() if half not in inner)
    return sorted(shards)


def latest(known: Mapping[Shard, int]) -> list[Shard]:
    """Return the shards that can exist at once. Of two that contradict, it is the later one."""
    leaves: list[Shard] = []
    for shard in sorted(known, key=lambda shard: (-known[shard], shard.n)):
        if not any(leaf.covers(shard) or shard.covers(leaf) for leaf in leaves):
            leaves.append(shard)
    return leaves


def is_whole(shards: Collection[Shard]) -> bool:
    """Tell whether these are all shards of a bucket, without gap or overlap."""
    finest = max((shard.n for shard in shards), default=0)
    # Split down to the finest n, every number must belong to exactly one shard.
    numbers = [number for shard in shards for number in range(shard.number, finest, shard.n)]
    return finest > 0 and sorted(numbers) == list(range(finest))


def heirs(number: int) -> Iterator[int]:
    """Yield the number, then the numbers of the shards that it is merged into, down to 0."""
    while number:
        yield number
        number = merged_into(number)
    yield 0


def merged_into(number: int) -> int:
    """Return the number of the shard that this one is merged into.

    It is the same number without its highest bit.
    """
    assert number > 0, "the first shard is never merged into another"
    return number ^ 1 << number.bit_length() - 1


def contradicts(shard: Shard, missing: int) -> bool:
    """Tell whether a shard cannot exist because number ``missing`` does not exist.

    Both would come from the same split, which creates ``missing``.
    """
    below = merged_into(missing)
    origin = Shard(below, missing - below)
    return shard != origin and origin.covers(shard)


def pairs(shards: Collection[Shard]) -> list[Shard]:
    """Return the surviving shard of each pair of siblings that both exist, the finest first."""
    present = set(shards)
    survivors = [
        shard for shard in present if shard.n > 1 and shard.survives and shard.sibling in present
    ]
    return sorted(survivors, key=lambda shard: (-shard.n, shard.number))


def _above(shard: Shard) -> Iterator[Shard]:
    while shard.n > 1:
        shard = shard.parent
        yield shard


def draw(shards: Collection[Shard], chance: float) -> Shard:
    """Choose a shard at random, in proportion to its share, since larger shards refill faster.

    ``chance`` is a random number from 0 to just below 1.
    """
    listed = sorted(shards)
    finest = max(shard.n for shard in listed)
    ends = list(accumulate(finest // shard.n for shard in listed))
    point = chance * ends[-1]
    return next((shard for shard, end in zip(listed, ends, strict=True) if point < end), listed[-1])


class Layout(NamedTuple):
    """The shards of a bucket as this client knows them.

    ``seen`` maps the shards that were read to their generations, and ``live`` are all shards that
    must exist if these do.
    """

    seen: Mapping[Shard, int]
    live: tuple[Shard, ...]

    @classmethod
    def of(cls, seen: Mapping[Shard, int]) -> Layout:
        return cls(seen, tuple(live(seen)))

    @property
    def is_split(self) -> bool:
        return any(shard != WHOLE for shard in self.seen)

    def with_seen(self, shard: Shard, generation: int) -> Layout:
        """Return the layout after a shard was read.

        Older shards that contradict it are dropped. Each number is one item, so an older shard with
        the same number is replaced.
        """
        if self.seen.get(shard) == generation:
            return self
        seen = {other: last for other, last in self.seen.items() if other.number != shard.number}
        seen[shard] = generation
        return Layout.of({leaf: seen[leaf] for leaf in latest(seen)})

    def without(self, number: int) -> Layout:
        """Return the layout after an item was found missing.

        Its shard was merged, or the bucket was deleted.
        """
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
