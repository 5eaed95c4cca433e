"""Buckets in memory: recently used ones as objects, the others as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from heapq import merge, nsmallest
from itertools import islice

from zae_limiter.admission.image import BucketImage
from zae_limiter.embedded.memory import rows as stored
from zae_limiter.embedded.memory.expiries import BucketKey, Expiries
from zae_limiter.embedded.memory.partitioned import Partitioned
from zae_limiter.embedded.memory.spaces import SpaceTables
from zae_limiter.embedded.tables import BucketRow, UndecodedBucket

PAGE = 500  # rows of one step of a listing: about a millisecond
MAX_RECENT = 4096  # buckets as objects: the garbage collector visits four objects for each
PACKED_AT_ONCE = 128  # buckets that become bytes in one step: less than a millisecond


class BucketTables(SpaceTables):
    """Buckets by namespace, resource and entity."""

    def __init__(self) -> None:
        super().__init__()
        self._recent: dict[BucketKey, BucketImage] = {}
        self.is_crowded = False  # whether ``pack`` should be called
        self._expiries = Expiries(self.journal)

    def pack(self) -> None:
        """Turn the oldest recent buckets into bytes. Must not be called inside a transaction."""
        for key, image in list(islice(self._recent.items(), PACKED_AT_ONCE)):
            namespace_id, entity_id, resource = key
            self._spaces[namespace_id].buckets[resource][entity_id] = stored.pack_bucket(image)
            del self._recent[key]
        self.is_crowded = len(self._recent) >= MAX_RECENT

    def get_bucket(self, namespace_id: str, entity_id: str, resource: str) -> BucketImage | None:
        image = self._recent.get((namespace_id, entity_id, resource))
        if image is not None:
            return image
        space = self._spaces.get(namespace_id)
        entities = None if space is None else space.buckets.get(resource)
        packed = None if entities is None else entities.get(entity_id)
        return None if packed is None else stored.unpack_bucket(packed)

    def put_bucket(
        self, namespace_id: str, entity_id: str, resource: str, image: BucketImage
    ) -> None:
        key = (namespace_id, entity_id, resource)
        before = self._recent.get(key)
        if before is None:
            self._make_recent(namespace_id, entity_id, resource)
        expires_ms = image.expires_ms
        if expires_ms is not None and (before is None or before.expires_ms != expires_ms):
            self._expiries.note(key, expires_ms)
        self.journal.put(self._recent, key, image)

    def _make_recent(self, namespace_id: str, entity_id: str, resource: str) -> None:
        """Make sure that a bucket which is not recent has a place among all buckets."""
        self.is_crowded = len(self._recent) >= MAX_RECENT
        space = self._space(namespace_id)
        entities = space.buckets.get(resource)
        if entities is None:
            entities = Partitioned()
            self.journal.put(space.buckets, resource, entities)
            self.journal.put(space.resources_in_use, resource, True)
        if entity_id not in entities:
            self.journal.put(entities, entity_id, b"")
            space.note_use(entity_id)

    def delete_bucket(self, namespace_id: str, entity_id: str, resource: str) -> None:
        by_resource = self._space(namespace_id).buckets
        entities = by_resource.get(resource)
        if entities is not None:
            self.journal.delete(self._recent, (namespace_id, entity_id, resource))
            self.journal.delete(entities, entity_id)
            if not entities:
                self.journal.delete(by_resource, resource)

    def buckets(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        after: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[BucketRow]:
        by_resource = self._space(namespace_id).buckets
        names = list(by_resource) if resource is None else [resource]
        keys = (
            (each, name)
            for name in names
            for each in (by_resource.get(name, ()) if entity_id is None else (entity_id,))
            if after is None or (each, name) > after
        )
        page = sorted(keys) if limit is None else nsmallest(limit, keys)
        return list(self._rows(namespace_id, page))

    def undecoded_buckets(
        self, namespace_id: str, after: tuple[str, str] | None, limit: int
    ) -> list[UndecodedBucket]:
        rows = self.buckets(namespace_id, None, None, after, limit)
        return [
            UndecodedBucket(row.entity_id, row.resource, None, partial(_same, row.image))
            for row in rows
        ]

    def resources_in_use(self, namespace_id: str) -> list[str]:
        return sorted(self._space(namespace_id).resources_in_use)

    def entity_buckets(self, namespace_id: str, entity_id: str) -> list[BucketRow]:
        resources = sorted(self._space(namespace_id).buckets)
        return list(self._rows(namespace_id, ((entity_id, resource) for resource in resources)))

    def bucket_pages(
        self, namespace_id: str, entity_id: str | None, resource: str | None
    ) -> Iterator[list[BucketRow]]:
        if entity_id is not None:
            rows = self.entity_buckets(namespace_id, entity_id)
            yield [row for row in rows if resource is None or row.resource == resource]
            return
        resources = sorted(self._space(namespace_id).buckets) if resource is None else (resource,)
        for name in resources:
            yield from self._resource_pages(namespace_id, name)

    def _resource_pages(self, namespace_id: str, resource: str) -> Iterator[list[BucketRow]]:
        entities = self._space(namespace_id).buckets.get(resource)
        parts = []
        for part in [] if entities is None else entities.parts():
            parts.append(sorted(part))
            yield []
        in_order = merge(*parts)
        while page := list(islice(in_order, PAGE)):
            yield list(self._rows(namespace_id, ((each, resource) for each in page)))

    def _rows(self, namespace_id: str, keys: Iterable[tuple[str, str]]) -> Iterator[BucketRow]:
        for key in keys:
            image = self.get_bucket(namespace_id, *key)
            if image is not None:
                yield BucketRow(namespace_id, *key, image)

    def expired_buckets(self, now_ms: int, limit: int) -> list[BucketRow]:
        expired: dict[BucketKey, BucketRow] = {}  # by key: a bucket may have several notes
        # Half of the notes may belong to buckets that were extended, or that expire within hours.
        for key in islice(self._expiries.due(now_ms), 2 * limit):
            image = self.get_bucket(*key)
            if image is None or image.expires_ms is None:
                continue
            if image.expires_ms > now_ms:
                self._expiries.note(key, image.expires_ms)
                continue
            expired[key] = BucketRow(*key, image)
            if len(expired) >= limit:
                break
        return list(expired.values())


def _same(image: BucketImage) -> BucketImage:
    """Return a bucket that needs no decoding."""
    return image
