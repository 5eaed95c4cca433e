"""What this client has seen of buckets and entities: hints, never the truth.

A write says what it assumes, and the store refuses it if that is wrong. So an old hint costs a
round trip and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from zae_limiter.admission.image import BucketImage
from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.dynamodb.view import BucketKey, Seen, View
from zae_limiter.models.entity import Entity
from zae_limiter.records.dynamodb.attributes import Item
from zae_limiter.records.dynamodb.bucket_item import Family, StoredBucket, decode

MAX_BUCKETS = 50_000
MAX_ENTITIES = 50_000


class Known:
    """Bounded; the least recently written entry goes first. Shared by all threads."""

    def __init__(self) -> None:
        self._buckets: dict[BucketKey, Seen] = {}
        self._families: dict[tuple[str, str], Family] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers

    def get(self, key: BucketKey) -> Seen | None:
        return self._buckets.get(key)

    def saw(
        self,
        key: BucketKey,
        bucket: StoredBucket,
        now_ms: int,
        own_milli: Mapping[str, int] | None = None,
        *,
        certain: bool = False,
    ) -> Seen:
        """Remember a bucket; ``own_milli`` is what this client took with the write that showed it.

        Answers may overtake each other: one with fewer writes is older, unless the store has
        just contradicted what was known (``certain``).
        """
        with self._lock:
            before = self._buckets.get(key)
            if before is not None and not certain and _is_older(bucket, before.bucket):
                return before
            others = _others(before, bucket, now_ms, own_milli or {})
            seen = Seen(bucket, now_ms, others)
            self._buckets.pop(key, None)
            self._buckets[key] = seen
            if len(self._buckets) > MAX_BUCKETS:
                del self._buckets[next(iter(self._buckets))]
            return seen

    def learn(
        self, key: BucketKey, item: Item | None, now_ms: int, assumed: StoredBucket | None
    ) -> View:
        """Take what the store has just shown literally.

        It contradicts what was ``assumed``, but not what was learnt since.
        """
        if item is None:
            self.forget(key)
            return View(None, literal=True)
        bucket = decode(item)
        seen = self._buckets.get(key)
        self.saw(key, bucket, now_ms, certain=seen is not None and seen.bucket is assumed)
        return View(bucket, literal=True)

    def saw_bucket(
        self, namespace_id: str, entity_id: str, resource: str, item: Item | None
    ) -> None:
        """A bucket that was read along with other things; the copy may lag a little."""
        key = (namespace_id, entity_id, resource)
        if item is None:
            self.forget(key)
        elif self.get(key) is None:  # else an answer to a write has shown more
            self.saw(key, decode(item), 0)

    def saw_entity(self, namespace_id: str, entity_id: str, entity: Entity | None) -> None:
        """An unknown entity has no parent."""
        family = Family() if entity is None else Family(entity.parent_id, entity.cascade)
        self._families[namespace_id, entity_id] = family  # without the lock, see forget()
        if len(self._families) > MAX_ENTITIES:
            with suppress(KeyError, RuntimeError, StopIteration):  # others do the same
                del self._families[next(iter(self._families))]

    def forget(self, key: BucketKey) -> None:
        """Nothing is known about it any more.

        Without the lock, which a signal handler of the main thread could not wait for.
        """
        self._buckets.pop(key, None)

    def family(self, namespace_id: str, entity_id: str) -> Family | None:
        return self._families.get((namespace_id, entity_id))

    def __len__(self) -> int:
        return len(self._buckets)


def _is_older(bucket: StoredBucket, than: StoredBucket) -> bool:
    return bucket.image.writes < than.image.writes


def _others(
    before: Seen | None, bucket: StoredBucket, now_ms: int, own_milli: Mapping[str, int]
) -> Mapping[str, int]:
    """Moving average over what was consumed and was not our own; a quarter for the newest."""
    if before is None or now_ms <= before.at_ms:
        return {} if before is None else before.others_milli_per_s
    found = {}
    elapsed_ms = now_ms - before.at_ms
    for name, state in bucket.image.limits.items():
        known = _consumed(before.bucket.image, name)
        theirs = max(0, state.consumed_milli - known - own_milli.get(name, 0))
        rate = before.others_milli_per_s.get(name, 0)
        found[name] = rate + (theirs * 1000 // elapsed_ms - rate) // 4
    return found


def _consumed(image: BucketImage, name: str) -> int:
    state = image.limits.get(name)
    return 0 if state is None else state.consumed_milli
