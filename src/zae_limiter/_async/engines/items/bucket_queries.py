"""Queries of buckets: one, those of an entity or resource, the capacity of a resource."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from zae_limiter import schema
from zae_limiter._async.engines.items.partitions import InTurn, Merged, Unordered
from zae_limiter._async.engines.items.port import ItemPages, ItemStore
from zae_limiter._async.engines.items.sharding.shard_reader import ShardReader
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.report import bucket_states, counted_state, resource_capacity
from zae_limiter.admission.shards.tree import is_whole
from zae_limiter.clock import Clock
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items.sharding.known_shards import whole_image
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import entities, keys
from zae_limiter.items.stored.attributes import Item, text
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.items.stored.keys import BucketId, Key
from zae_limiter.items.stored.query import BETWEEN, ItemQuery, Range
from zae_limiter.models.bucket import BucketEntry, BucketState, ResourceCapacity
from zae_limiter.runtime.parallel import Parallel

_log = logging.getLogger(__name__)

MIN_INDEX_PAGE = 1000  # of the namespace's index, where buckets are some among other items
# Of one partition of a resource, besides twice its share of a page: most pages then take one
# query of each partition.
MIN_PARTITION_PAGE = 8
_BUCKETS, _AFTER_BUCKETS = "BUCKET#", "BUCKET$"  # `$` comes right after `#`
_AFTER = "!"  # behind the sort key of a first shard: no other sort key begins with that


class ReadBuckets(NamedTuple):
    """Buckets by entity and resource, and the errors of those in a form that nobody can read."""

    whole: dict[tuple[str, str], list[StoredBucket]]
    unreadable: dict[tuple[str, str], IncompatibleSchemaError]

    def all(self) -> dict[tuple[str, str], list[StoredBucket]]:
        """Return the buckets; raise an error that names the unreadable ones if there are any."""
        for error in self.unreadable.values():
            first = error.copy()
            first.buckets = tuple(self.unreadable)
            raise first
        return self.whole


class BucketQueries:
    """Finds buckets through the indexes, which hold keys only, and reads the items by key."""

    def __init__(self, store: ItemStore, reader: ShardReader, parallel: Parallel) -> None:
        self._store = store
        self._reader = reader
        self._parallel = parallel

    async def image(self, bucket_id: BucketId, clock: Clock) -> BucketImage | None:
        """Return one bucket with all of its shards combined; None if it does not exist."""
        shards = await self._shards(bucket_id)
        return whole_image(shards, clock()) if shards else None

    async def states(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        clock: Clock,
    ) -> list[BucketState]:
        """Return all buckets of an entity, of a resource, or of both."""
        images = await self._images(namespace_id, entity_id, resource, clock)
        now_ms = clock()
        return [
            state
            for (entity, name), image in sorted(images.items())
            for state in bucket_states(entity, name, image, now_ms)
        ]

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        """Sum one limit over its entities; an entity that is not registered has no parent."""
        images = await self._images(namespace_id, None, resource, clock)
        now_ms = clock()
        counted = (
            counted_state(entity_id, resource, image, limit_name, now_ms)
            for (entity_id, _), image in sorted(images.items())
        )
        states = [state for state in counted if state is not None]
        if parents_only:
            children = await self._children(namespace_id, {state.entity_id for state in states})
            states = [state for state in states if state.entity_id not in children]
        return resource_capacity(resource, limit_name, states)

    async def _children(self, namespace_id: str, entity_ids: set[str]) -> set[str]:
        wanted = [keys.entity(namespace_id, entity_id) for entity_id in sorted(entity_ids)]
        items = await self._store.get_several(wanted, consistent=False)
        registered = [entities.decode(item) for item in items.values()]
        return {entity.id for entity in registered if not entity.is_parent}

    async def _images(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> dict[tuple[str, str], BucketImage]:
        """Return buckets by entity and resource, limits by name."""
        if entity_id is not None and resource is not None:
            buckets = await self._shards(BucketId(namespace_id, entity_id, resource))
            shards = {(entity_id, resource): buckets} if buckets else {}
        else:
            shards = (await self._read(await self._keys(namespace_id, entity_id, resource))).all()
        images = {}
        for entity_and_resource, buckets in shards.items():
            images[entity_and_resource] = _sorted_limits(whole_image(buckets, clock()))
        return images

    async def _shards(self, bucket_id: BucketId) -> list[StoredBucket]:
        shards = await self._reader.read_all(bucket_id, None, self._store.deadline())
        return [bucket_item.in_full(each.item) for each in shards.values()]

    async def _read(self, wanted: list[Key], *, consistent: bool = True) -> ReadBuckets:
        """Read buckets by key; those that were split or merged meanwhile are read once more."""
        if consistent:
            items = await self._store.get_many(wanted)
        else:
            items = await self._store.get_several(wanted, consistent=False)
        found = ReadBuckets({}, {})
        read: dict[BucketId, list[StoredBucket]] = {}
        for key, item in items.items():
            bucket_id = BucketId(*schema.parse_bucket_pk(key.pk)[:3])
            try:
                read.setdefault(bucket_id, []).append(bucket_item.in_full(item))
            except IncompatibleSchemaError as error:
                found.unreadable[bucket_id.entity_id, bucket_id.resource] = error
        for bucket_id, buckets in read.items():
            place = bucket_id.entity_id, bucket_id.resource
            if place in found.unreadable:
                continue
            fits = is_whole([each.shard for each in buckets])
            try:
                shards = buckets if fits else await self._shards(bucket_id)
            except IncompatibleSchemaError as error:
                found.unreadable[place] = error
                continue
            if shards:
                found.whole[place] = shards
        return found

    # --- pages

    async def page(
        self, listed: IndexedBuckets, after: tuple[str, str] | None, limit: int, clock: Clock
    ) -> tuple[list[BucketState], tuple[str, str] | None]:
        """Return a page of buckets in the order of an index, and the last one if there are more."""
        if listed.entity_id is not None and listed.resource is not None:
            if after is not None:
                return [], None
            return await self.states(*listed, clock), None
        found, last = await self.entries(listed, after, limit)
        now_ms = clock()
        return [state for entry in found for state in _readable(entry, now_ms)], last

    async def entries(
        self, listed: IndexedBuckets, after: tuple[str, str] | None, limit: int
    ) -> tuple[list[BucketEntry], tuple[str, str] | None]:
        """Return a page of buckets of an entity, a resource or a namespace, not yet decoded."""
        # One more than the page shows whether there is another one.
        keys_of_page = await self.first_shards(listed, after, limit + 1)
        shown = keys_of_page[:limit]
        whole, unreadable = await self._read(shown)
        found = [
            BucketEntry(*bucket, None, partial(_states_of, bucket, whole[bucket]))
            if bucket in whole
            else BucketEntry(*bucket, None, partial(_refuse, unreadable[bucket]))
            for bucket in map(_entity_and_resource, shown)
            if bucket in whole or bucket in unreadable  # others have expired since the index
        ]
        return found, _entity_and_resource(shown[-1]) if len(keys_of_page) > limit else None

    async def some(
        self, namespace_id: str, buckets: Sequence[tuple[str, str]], clock: Clock
    ) -> list[BucketState]:
        """Return buckets by their keys, at half the price of a consistent read.

        Unreadable ones are left out: a page that asks every few seconds has the list name them.
        """
        wanted = [keys.bucket(namespace_id, *bucket) for bucket in buckets]
        shards = (await self._read(wanted, consistent=False)).whole
        now_ms = clock()
        return [
            state
            for bucket in buckets
            if bucket in shards
            for state in _states_of(bucket, shards[bucket], now_ms)
        ]

    async def first_shards(
        self, listed: IndexedBuckets, after: tuple[str, str] | None, limit: int
    ) -> list[Key]:
        """Return keys of the buckets' first shards, of which every bucket has one."""
        first_shards: list[Key] = []
        if listed.resource is not None:
            size = limit // schema.PARTITIONS * 2 + MIN_PARTITION_PAGE
            queries = listed.pages(self._store, after, size)
            merged = Merged(queries, self._parallel, lambda entry: text(entry["GSI2SK"]))
            while len(first_shards) < limit and (entries := await merged.take(limit)):
                first_shards += _first_shards(entries)
        else:
            queries = listed.pages(self._store, after, max(limit, MIN_INDEX_PAGE))
            in_turn = InTurn(queries, self._parallel)
            while len(first_shards) < limit and (entries := await in_turn.page()):
                first_shards += _first_shards(entries)
        return first_shards[:limit]

    async def _keys(
        self, namespace_id: str, entity_id: str | None, resource: str | None
    ) -> list[Key]:
        queries = IndexedBuckets(namespace_id, entity_id, resource).pages(self._store)
        return [Key.of(item) for item in await Unordered(queries, self._parallel).all()]


class IndexedBuckets(NamedTuple):
    """Buckets of an entity, of a resource, or of a whole namespace, as an index lists them.

    Those of an entity are in the order of resources, those of a resource in the order of
    entities; those of a namespace are in no order, but always in the same.
    """

    namespace_id: str
    entity_id: str | None = None
    resource: str | None = None

    def pages(
        self,
        store: ItemStore,
        after: tuple[str, str] | None = None,
        page_size: int | None = None,
    ) -> list[ItemPages]:
        """Return the queries of their keys, starting after the first shard of a bucket."""
        if self.entity_id is not None:
            partition = schema.gsi3_pk_entity(self.namespace_id, self.entity_id)
            first = _BUCKETS if after is None else schema.gsi3_sk_bucket(after[1], 0) + _AFTER
            return [store.query(_sorted("GSI3", partition, first, page_size))]
        if self.resource is not None:
            first = _BUCKETS if after is None else schema.gsi2_sk_bucket(after[0], 0) + _AFTER
            return [
                store.query(_sorted("GSI2", partition, first, page_size))
                for partition in schema.gsi2_partitions(self.namespace_id, self.resource)
            ]
        return list(map(store.query, self._queries_of_all(after, page_size)))

    def _queries_of_all(
        self, after: tuple[str, str] | None, page_size: int | None
    ) -> list[ItemQuery]:
        """Return queries of an index that has no sort key and lists everything."""
        partitions, position = schema.gsi4_partitions(self.namespace_id), None
        if after is not None:
            key = keys.bucket(self.namespace_id, *after)
            index_key = keys.namespace_index(self.namespace_id, key, after[0])
            position = {**key.attributes, **index_key}  # also if the bucket has expired
            partitions = partitions[partitions.index(text(index_key["GSI4PK"])) :]
        return [
            ItemQuery(
                partition,
                index_name="GSI4",
                only=(schema.sk_state(),),
                page_size=page_size,
                after=position if number == 0 else None,
            )
            for number, partition in enumerate(partitions)
        ]


def _sorted(index: str, partition: str, first: str, page_size: int | None) -> ItemQuery:
    return ItemQuery(partition, Range(BETWEEN, first, _AFTER_BUCKETS), index, page_size=page_size)


def _first_shards(entries: list[Item]) -> list[Key]:
    indexed = map(Key.of, entries)
    return [key for key in indexed if not schema.parse_bucket_pk(key.pk).shard_id]


def _entity_and_resource(key: Key) -> tuple[str, str]:
    parts = schema.parse_bucket_pk(key.pk)
    return parts.entity_id, parts.resource


def _refuse(error: IncompatibleSchemaError, now_ms: int) -> NoReturn:
    raise error.copy()


def _readable(entry: BucketEntry, now_ms: int) -> list[BucketState]:
    """Return the states of a bucket; none, and a warning, if it cannot be read."""
    try:
        return entry.states(now_ms)
    except IncompatibleSchemaError as error:
        _log.warning(
            "the bucket of %r on %r is not listed: %s", entry.entity_id, entry.resource, error
        )
        return []


def _states_of(
    bucket: tuple[str, str], shards: list[StoredBucket], now_ms: int
) -> list[BucketState]:
    return bucket_states(*bucket, _sorted_limits(whole_image(shards, now_ms)), now_ms)


def _sorted_limits(image: BucketImage) -> BucketImage:
    return image._replace(limits=dict(sorted(image.limits.items())))
