"""Bucket items as this client has last seen them.

Entries are hints, never the truth: every write carries its assumptions as its condition, and the
store refuses the write if they are wrong. An outdated entry costs a round trip and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import has_limits
from zae_limiter.admission.shards.pressure import WINDOW_MS, Pressure, observed
from zae_limiter.admission.shards.tree import UNKNOWN, Layout
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket, decode
from zae_limiter.items.stored.keys import BucketId, ShardId
from zae_limiter.models.entity import Entity
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.locks import SignalSafeLock

MAX_BUCKETS = 50_000  # bounds memory; an evicted bucket costs one refused write
MAX_ENTITIES = 50_000  # bounds memory; an evicted link is read again for a new bucket
MAX_DIGESTS = 64  # of one configuration; most buckets of a configuration share one digest
NEVER_PER_S = 1e-4  # a write in three hours: other clients have probably never turned the hour
LONG_AGO = 0  # the time of entries that were read along with others: never recent enough


@dataclass(slots=True)
class CachedBucket:
    """A bucket or shard that was seen at ``at_ms``.

    ``others_milli_per_s`` is how fast other clients take from each limit, ``others_per_s`` how
    often they write to the item, ``pressure`` how fast all clients write to it.
    """

    bucket: StoredBucket
    at_ms: int
    others_milli_per_s: Mapping[str, int]
    pressure: Pressure
    others_per_s: float = 0.0
    is_fresh: ClassVar[bool] = False


@dataclass(slots=True)
class FreshBucket:
    """A bucket that was read for this very request; None if it does not exist.

    The bucket is taken literally: no other client is expected to have written since.
    """

    bucket: StoredBucket | None
    is_fresh: ClassVar[bool] = True
    at_ms: ClassVar[int] = 0
    others_milli_per_s: ClassVar[Mapping[str, int]] = MappingProxyType({})
    others_per_s: ClassVar[float] = 0.0


class NeverSeen:
    """A bucket of which nothing is known: it may exist or not."""

    bucket: ClassVar[None] = None
    is_fresh: ClassVar[bool] = False
    at_ms: ClassVar[int] = 0
    others_milli_per_s: ClassVar[Mapping[str, int]] = MappingProxyType({})
    others_per_s: ClassVar[float] = 0.0


KnownBucket = CachedBucket | FreshBucket | NeverSeen
NEVER_SEEN = NeverSeen()


def holds_limits(bucket: StoredBucket, in_force: InForce) -> bool:
    """Tell whether the bucket holds every limit in force, at its shard's rates; it may hold others.

    The digest stands for the parameters, so they are compared once per digest.
    """
    if bucket.digest in in_force.digests:
        return True
    if not has_limits(bucket.image, in_force):
        return False
    if len(in_force.digests) >= MAX_DIGESTS:
        in_force.digests.clear()
    in_force.digests.add(bucket.digest)
    return True


class BucketCache:
    """A bounded cache of bucket items; the least recently written entry is evicted first.

    ``get`` returns the entry of an item, ``layout`` the shards of a bucket that is split; each
    returns None if there is none. Both are plain dict look-ups: they happen on every acquire.
    """

    def __init__(self) -> None:
        self._buckets: BoundedDict[ShardId, CachedBucket] = BoundedDict(MAX_BUCKETS)
        self._layouts: dict[BucketId, Layout] = {}  # only of buckets that are split
        self._entity_links: BoundedDict[tuple[str, str], EntityLink] = BoundedDict(MAX_ENTITIES)
        self.get: Callable[[ShardId], CachedBucket | None] = self._buckets.get
        self.layout: Callable[[BucketId], Layout | None] = self._layouts.get
        self._lock = SignalSafeLock()

    def store(
        self,
        shard_id: ShardId,
        bucket: StoredBucket,
        now_ms: int,
        own_milli: Mapping[str, int] | None = None,
        *,
        certain: bool = False,
    ) -> CachedBucket:
        """Store an item; ``own_milli`` are the amounts that this client took with its own write.

        Responses may overtake each other. The one with the lower generation, or else with fewer
        writes, is older and is dropped, unless the store has just contradicted the entry
        (``certain``).
        """
        with self._lock:
            buckets = self._buckets
            before = buckets.get(shard_id)
            if before is not None and not certain:
                newest, generation = before.bucket, bucket.generation
                if generation < newest.generation or (
                    generation == newest.generation and bucket.image.writes < newest.image.writes
                ):
                    return before
            entry = _entry(before, bucket, now_ms, own_milli)
            buckets[shard_id] = entry  # not put(): an evicted shard leaves its layout, too
            if before is not None:
                try:  # noqa: SIM105 - every acquire comes here, and `suppress` costs four calls
                    buckets.move_to_end(shard_id)
                except KeyError:  # a signal handler may have dropped it
                    pass
            if self._layouts or bucket.shard.n > 1:
                self._add_to_layout(shard_id.bucket_id, bucket)
            if len(buckets) > buckets.max_size:
                self._drop(next(iter(buckets)))
            return entry

    def store_authoritative(
        self,
        shard_id: ShardId,
        item: Item | None,
        now_ms: int,
        assumed: StoredBucket | None,
        *,
        in_full: bool = False,
    ) -> FreshBucket:
        """Store the item of a read or of a refused write; None if the item does not exist.

        The item replaces the entry that the request had ``assumed``, but not a newer one.
        ``in_full`` decodes the counts of children again, which only structural writes depend on.
        """
        if item is None:
            self.drop_shard(shard_id)
            return FreshBucket(None)
        bucket = decode(item, None if in_full else assumed)
        entry = self._buckets.get(shard_id)
        certain = entry is not None and entry.bucket is assumed
        self.store(shard_id, bucket, now_ms, certain=certain)
        return FreshBucket(bucket)

    def drop_shard(self, shard_id: ShardId) -> None:
        """Drop an item that does not exist: the shard was merged, or the bucket was deleted."""
        bucket_id = shard_id.bucket_id
        with self._lock:
            self._buckets.pop(shard_id, None)
            layout = self._layouts.get(bucket_id)
            if layout is not None:
                self._replace_layout(bucket_id, layout, layout.without(shard_id.number))

    def invalidate(self, shard_id: ShardId) -> None:
        """Drop an entry that may be wrong by now."""
        with self._lock:
            self._drop(shard_id)

    def drop_bucket(self, bucket_id: BucketId) -> None:
        """Drop all entries of a bucket.

        Takes no lock: a signal handler in the main thread could not wait for it.
        """
        for shard in self._layouts.pop(bucket_id, UNKNOWN).seen:
            self._buckets.pop(bucket_id.shard(shard.number), None)
        self._buckets.pop(bucket_id.shard(0), None)

    def entity_link(self, namespace_id: str, entity_id: str) -> EntityLink | None:
        return self._entity_links.get((namespace_id, entity_id))

    def on_bucket_read(
        self, namespace_id: str, entity_id: str, resource: str, item: Item | None
    ) -> None:
        """Store a bucket that was read along with the configuration; the copy may lag a little."""
        bucket_id = BucketId(namespace_id, entity_id, resource)
        if item is None:
            self.drop_bucket(bucket_id)
        elif self.get(bucket_id.shard(0)) is None:  # the response to a write has shown more
            self.store(bucket_id.shard(0), decode(item), LONG_AGO)

    def on_entity_read(self, namespace_id: str, entity_id: str, entity: Entity | None) -> None:
        """Store the link of an entity to its parent; an unknown entity has none."""
        link = EntityLink() if entity is None else EntityLink(entity.parent_id, entity.cascade)
        self._entity_links.put((namespace_id, entity_id), link)  # no lock, see drop_bucket()

    def __len__(self) -> int:
        return len(self._buckets)

    def _add_to_layout(self, bucket_id: BucketId, bucket: StoredBucket) -> None:
        layout = self._layouts.get(bucket_id, UNKNOWN)
        if layout.seen or bucket.shard.n > 1:
            with_shard = layout.with_seen(bucket.shard, bucket.generation)
            self._replace_layout(bucket_id, layout, with_shard)

    def _replace_layout(self, bucket_id: BucketId, before: Layout, after: Layout) -> None:
        """Drop the entries of shards that cannot exist any more."""
        if after is before:
            return
        live = {shard.number for shard in after.seen}
        for shard in before.seen:
            if shard.number not in live:
                self._buckets.pop(bucket_id.shard(shard.number), None)
        if after.is_split:
            self._layouts[bucket_id] = after
        else:
            self._layouts.pop(bucket_id, None)

    def _drop(self, shard_id: ShardId) -> None:
        bucket_id = shard_id.bucket_id
        self._buckets.pop(shard_id, None)
        layout = self._layouts.get(bucket_id)
        if layout is not None:
            kept = {
                shard: generation
                for shard, generation in layout.seen.items()
                if shard.number != shard_id.number
            }
            self._replace_layout(bucket_id, layout, Layout.of(kept))


def _entry(
    before: CachedBucket | None,
    bucket: StoredBucket,
    now_ms: int,
    own_milli: Mapping[str, int] | None,
) -> CachedBucket:
    writes = bucket.image.writes
    if before is None:
        pressure = observed(None, bucket.shard, writes, now_ms)
        return CachedBucket(bucket, now_ms, {}, pressure, _lifelong_per_s(bucket, now_ms))
    last, others, others_per_s = before.bucket, before.others_milli_per_s, before.others_per_s
    since = writes - last.image.writes
    if others or others_per_s or not (since == 1 if own_milli else since == 0):
        others = _others(before, bucket, now_ms, own_milli or {})
        others_per_s = _others_per_s(before, writes - (own_milli is not None), now_ms)
    # otherwise no other client has written since then
    pressure = before.pressure
    if before.at_ms == LONG_AGO:
        pressure = observed(None, bucket.shard, writes, now_ms)
    elif (
        now_ms - pressure.at_ms >= WINDOW_MS or bucket.generation != last.generation
    ):  # within a window and a generation the rate stays as it is
        pressure = observed(pressure, bucket.shard, writes, now_ms)
    return CachedBucket(bucket, now_ms, others, pressure, others_per_s)


def _lifelong_per_s(bucket: StoredBucket, now_ms: int) -> float:
    """Return how often a bucket was written to since it was created, except by the last write.

    The generation of an item is the time of its creation, plus a few. The guess serves until the
    bucket has been seen twice.
    """
    alive_ms = max(now_ms - bucket.generation, WINDOW_MS)
    return max(0, bucket.image.writes - 1) * 1000 / alive_ms


def _others_per_s(before: CachedBucket, writes: int, now_ms: int) -> float:
    """Return how often other clients write; ``writes`` is the count without the own write.

    The rate rises at once and falls slowly. A rate that is too high costs one refused write at the
    border between hours; a rate that is too low, as by an average after a pause, costs one refused
    write of each client.
    """
    elapsed_ms, rate = now_ms - before.at_ms, before.others_per_s
    if elapsed_ms <= 0 or before.at_ms == LONG_AGO:
        return rate
    of_others = max(0, writes - before.bucket.image.writes)
    latest = of_others * 1000 / elapsed_ms
    rate = max(latest, rate + (latest - rate) / 4)
    return rate if rate > NEVER_PER_S else 0.0


def _others(
    before: CachedBucket, bucket: StoredBucket, now_ms: int, own_milli: Mapping[str, int]
) -> Mapping[str, int]:
    """Average the consumption by other clients: a quarter for the newest interval.

    Limits that only this client takes from are left out.
    """
    limits_before, rates = before.bucket.image.limits, before.others_milli_per_s
    elapsed_ms = now_ms - before.at_ms
    if elapsed_ms <= 0:
        return rates
    averages = {}
    for name, state in bucket.image.limits.items():
        taken = state.consumed_milli - own_milli.get(name, 0)
        if name in limits_before:
            taken -= limits_before[name].consumed_milli
        rate = rates.get(name, 0)
        if taken > 0 or rate:
            averages[name] = rate + (max(0, taken) * 1000 // elapsed_ms - rate) // 4
    return averages
