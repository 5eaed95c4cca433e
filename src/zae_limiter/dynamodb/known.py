"""What this client has seen of buckets and entities: hints, never the truth.

A write says what it assumes, and the store refuses it if that is wrong. So an old hint costs a
round trip and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from zae_limiter.admission.shards.pressure import observed
from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.dynamodb.layout import UNKNOWN, Layout
from zae_limiter.dynamodb.view import Place, Read, Seen, Spot, first_spot, place_of
from zae_limiter.models.entity import Entity
from zae_limiter.records.dynamodb.attributes import Item
from zae_limiter.records.dynamodb.bucket_item import Family, StoredBucket, decode

MAX_BUCKETS = 50_000
MAX_ENTITIES = 50_000
LONG_AGO = 0


class Known:
    """Bounded; the least recently written entry goes first. Shared by all threads.

    ``get`` returns what was seen of an item, ``layout`` the shards of a bucket that is split;
    None for any other. They are asked all the time.
    """

    def __init__(self) -> None:
        self._buckets: dict[Spot, Seen] = {}
        self._layouts: dict[Place, Layout] = {}  # only of buckets that are split
        self._families: dict[tuple[str, str], Family] = {}
        self.get: Callable[[Spot], Seen | None] = self._buckets.get
        self.layout: Callable[[Place], Layout | None] = self._layouts.get
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers

    def saw(
        self,
        spot: Spot,
        bucket: StoredBucket,
        now_ms: int,
        own_milli: Mapping[str, int] | None = None,
        *,
        certain: bool = False,
    ) -> Seen:
        """Remember an item; ``own_milli`` is what this client took with the write that showed it.

        Answers may overtake each other: one with fewer writes is older (what changes the shape of
        a bucket counts first), unless the store has just contradicted what was known (``certain``).
        """
        with self._lock:
            before = self._buckets.get(spot)
            if before is not None and not certain:
                known = before.bucket
                if (bucket.generation, bucket.image.writes) < (
                    known.generation,
                    known.image.writes,
                ):
                    return before
            seen = _seen(before, bucket, now_ms, own_milli)
            self._buckets.pop(spot, None)
            self._buckets[spot] = seen
            if bucket.shard.n > 1 or self._layouts:
                self._arrange(place_of(spot), bucket)
            if len(self._buckets) > MAX_BUCKETS:
                self._drop(next(iter(self._buckets)))
            return seen

    def learn(
        self, spot: Spot, item: Item | None, now_ms: int, assumed: StoredBucket | None
    ) -> Read:
        """Take what the store has just shown literally.

        It contradicts what was ``assumed``, but not what was learnt since.
        """
        if item is None:
            self.missed(spot)
            return Read(None)
        bucket = decode(item, assumed)
        seen = self._buckets.get(spot)
        self.saw(spot, bucket, now_ms, certain=seen is not None and seen.bucket is assumed)
        return Read(bucket)

    def saw_bucket(
        self, namespace_id: str, entity_id: str, resource: str, item: Item | None
    ) -> None:
        """A bucket that was read along with other things; the copy may lag a little."""
        spot = (namespace_id, entity_id, resource, 0)
        if item is None:
            self.forget(place_of(spot))
        elif self.get(spot) is None:  # else an answer to a write has shown more
            self.saw(spot, decode(item), LONG_AGO)

    def saw_entity(self, namespace_id: str, entity_id: str, entity: Entity | None) -> None:
        """An unknown entity has no parent."""
        family = Family() if entity is None else Family(entity.parent_id, entity.cascade)
        self._families[namespace_id, entity_id] = family  # without the lock, see forget()
        if len(self._families) > MAX_ENTITIES:
            with suppress(KeyError, RuntimeError, StopIteration):  # others do the same
                del self._families[next(iter(self._families))]

    def missed(self, spot: Spot) -> None:
        """The item is not there: its shard was merged, or the bucket is gone."""
        place, number = place_of(spot), spot[3]
        with self._lock:
            self._buckets.pop(spot, None)
            known = self._layouts.get(place)
            if known is not None:
                self._set(place, known, known.without(number))

    def doubt(self, spot: Spot) -> None:
        """What was seen of it may be wrong by now."""
        with self._lock:
            self._drop(spot)

    def forget(self, place: Place) -> None:
        """Nothing is known about a bucket any more.

        Without the lock, which a signal handler of the main thread could not wait for.
        """
        for shard in self._layouts.pop(place, UNKNOWN).seen:
            self._buckets.pop((*place, shard.number), None)
        self._buckets.pop(first_spot(place), None)

    def family(self, namespace_id: str, entity_id: str) -> Family | None:
        return self._families.get((namespace_id, entity_id))

    def __len__(self) -> int:
        return len(self._buckets)

    def _arrange(self, place: Place, bucket: StoredBucket) -> None:
        known = self._layouts.get(place, UNKNOWN)
        if known.seen or bucket.shard.n > 1:
            self._set(place, known, known.with_seen(bucket.shard, bucket.generation))

    def _set(self, place: Place, before: Layout, after: Layout) -> None:
        """What is no longer there is forgotten."""
        if after is before:
            return
        live = {shard.number for shard in after.seen}
        for shard in before.seen:
            if shard.number not in live:
                self._buckets.pop((*place, shard.number), None)
        if after.is_split:
            self._layouts[place] = after
        else:
            self._layouts.pop(place, None)

    def _drop(self, spot: Spot) -> None:
        place, number = place_of(spot), spot[3]
        self._buckets.pop(spot, None)
        known = self._layouts.get(place)
        if known is not None:
            kept = {shard: found for shard, found in known.seen.items() if shard.number != number}
            self._set(place, known, Layout.of(kept))


def _seen(
    before: Seen | None, bucket: StoredBucket, now_ms: int, own_milli: Mapping[str, int] | None
) -> Seen:
    writes = bucket.image.writes
    if before is None:
        return Seen(bucket, now_ms, {}, observed(None, bucket.shard, writes, now_ms))
    known = None if before.at_ms == LONG_AGO else before.pressure
    others = before.others_milli_per_s
    if others or not own_milli or writes != before.bucket.image.writes + 1:
        others = _others(before, bucket, now_ms, own_milli or {})
    # else the only write since then is our own
    return Seen(bucket, now_ms, others, observed(known, bucket.shard, writes, now_ms))


def _others(
    before: Seen, bucket: StoredBucket, now_ms: int, own_milli: Mapping[str, int]
) -> Mapping[str, int]:
    """Moving average over what was consumed and was not our own; a quarter for the newest.

    Limits that nobody else takes from are left out.
    """
    known, rates = before.bucket.image.limits, before.others_milli_per_s
    elapsed_ms = now_ms - before.at_ms
    if elapsed_ms <= 0:
        return rates
    found = {}
    for name, state in bucket.image.limits.items():
        theirs = state.consumed_milli - own_milli.get(name, 0)
        if name in known:
            theirs -= known[name].consumed_milli
        rate = rates.get(name, 0)
        if theirs > 0 or rate:
            found[name] = rate + (max(0, theirs) * 1000 // elapsed_ms - rate) // 4
    return found
