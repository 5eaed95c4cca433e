"""The port of entities."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter import schema
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.partitions import InTurn
from zae_limiter._async.engines.items.port import MAX_GROUP, MAX_KEYS
from zae_limiter._async.engines.items.transactions import TransactionPlan
from zae_limiter.admission.configuration import (
    PlaceChange,
    create_entity,
    entity_deleted,
    revise_place,
)
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import ValidationError
from zae_limiter.items.sharding.transactions import siblings
from zae_limiter.items.stored import entities, entity_items, keys
from zae_limiter.items.stored import guarded_writes as guarded
from zae_limiter.items.stored.attributes import MAX_DOCUMENT_CHARACTERS, Item, text
from zae_limiter.items.stored.entity_items import EntityItems
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.query import AFTER, BETWEEN, ItemQuery, Range
from zae_limiter.models.audit import AuditedChange
from zae_limiter.models.entity import Entity
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.runtime.parallel import agather
from zae_limiter.schema import BucketKey

OTHER_ACTIONS = 4  # a deletion also writes the entity, the registry, the version and the event
MAX_ITEMS = MAX_GROUP - OTHER_ACTIONS  # actions for limits and buckets: 32 buckets at a time
MAX_NAMED = 1000  # resources in the event of a deletion, which is one item of at most 400 KB
MIN_INDEX_PAGE = 1000  # in the namespace's index, entities are few among other items
PARALLEL_QUERIES = 16  # for the buckets of unregistered entities; leaves throughput to acquires

Placed = tuple[str, Entity]  # the cursor of a page that starts after an entity, and that entity


class ItemEntities:
    """Each change and its audit event are one transaction."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._store = context.store

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        change = AuditedChange.by(principal, entity.id, now_ms)
        item = entities.encode(namespace_id, entity, change.event_id)
        if len(text(item["metadata"])) > MAX_DOCUMENT_CHARACTERS:
            raise ValidationError(
                "metadata",
                len(entity.metadata),
                f"must have at most {MAX_DOCUMENT_CHARACTERS} characters",
            )
        await self._context.refuse_if_purging(namespace_id)
        is_retry = False

        async def plan(deadline: Deadline) -> TransactionPlan[None]:
            nonlocal is_retry  # the first attempt reads nothing: most entities are new
            key = keys.entity(namespace_id, entity.id)
            exists = is_retry and await self._store.get(key, deadline) is not None
            event, is_retry = create_entity(entity, exists=exists), True
            writes = [guarded.put_new(item), self._context.log(namespace_id, change, *event)]
            return TransactionPlan(None, writes, change.event_id)

        await self._context.commit(namespace_id, plan)
        self._context.listener.on_entity_read(namespace_id, entity.id, entity)

    async def get(self, namespace_id: str, entity_id: str) -> Entity | None:
        item = await self._store.get(keys.entity(namespace_id, entity_id))
        return None if item is None else entities.decode(item)

    async def get_many(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        wanted = [keys.entity(namespace_id, entity_id) for entity_id in entity_ids]
        items = await self._store.get_many(wanted)
        registered = map(entities.decode, items.values())
        return {entity.id: entity for entity in registered}

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        children, _ = await self.page(namespace_id, parent_id, "", None)
        return children

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> tuple[list[Entity], str | None]:
        # One more entity than the page has shows whether there is another page.
        most = None if limit is None else limit + 1
        if parent_id is None:
            entities_of_page = await self._page_of_all(namespace_id, after, most)
        else:
            entities_of_page = await self._page_of_children(namespace_id, parent_id, after, most)
        page = [entity for _, entity in entities_of_page]
        if limit is None or len(page) <= limit:
            return page, None
        return page[:limit], entities_of_page[limit - 1][0]

    async def _page_of_children(
        self, namespace_id: str, parent_id: str, after: str, limit: int | None
    ) -> list[Placed]:
        partition = schema.gsi1_pk_parent(namespace_id, parent_id)
        sort = Range(AFTER, schema.gsi1_sk_child(after))
        query = ItemQuery(partition, sort, index_name="GSI1", page_size=limit)
        children = [entities.decode(item) for item in await self._store.query(query).all(limit)]
        return [(child.id, child) for child in children]

    # --- all entities of a namespace

    async def _page_of_all(self, namespace_id: str, after: str, limit: int | None) -> list[Placed]:
        """Read entities in the order of the namespace's index, which projects keys only.

        An id that was never registered is listed at the place of its first bucket in the index.
        """
        indexed = self._indexed(namespace_id, after, limit)
        page: list[Placed] = []
        judged: set[str] = set()
        while not indexed.is_over:
            listed = [Key.of(item) for item in await indexed.page()]
            while listed:
                # Read no more than the page lacks: every unregistered id costs a query.
                lacking = MAX_KEYS if limit is None else max(limit - len(page), PARALLEL_QUERIES)
                batch, listed = listed[: min(lacking, MAX_KEYS)], listed[min(lacking, MAX_KEYS) :]
                page += await self._in_batch(namespace_id, batch, judged)
                if limit is not None and len(page) >= limit:
                    return page[:limit]
        return page

    def _indexed(self, namespace_id: str, after: str, limit: int | None) -> InTurn:
        """Return the index entries of entities and buckets after a cursor."""
        partitions, position = schema.gsi4_partitions(namespace_id), None
        if after:
            position = entities.index_position(namespace_id, after)
            partitions = partitions[partitions.index(text(position["GSI4PK"])) :]
        queries = [
            ItemQuery(
                partition,
                index_name="GSI4",
                only=(schema.sk_meta(), schema.sk_state()),
                page_size=None if limit is None else max(limit, MIN_INDEX_PAGE),
                after=position if number == 0 else None,
            )
            for number, partition in enumerate(partitions)
        ]
        return InTurn(list(map(self._store.query, queries)), self._context.parallel)

    async def set_parent(
        self,
        namespace_id: str,
        entity_id: str,
        parent_id: str | None,
        *,
        cascade: bool,
        now_ms: int,
        principal: str | None,
    ) -> Entity | None:
        """Replace the entity's item; no code uses the copies in its bucket items, which stay."""
        placing = PlaceChange(entity_id, parent_id, cascade)
        change = AuditedChange.by(principal, entity_id, now_ms)

        async def plan(deadline: Deadline) -> TransactionPlan[Entity | None]:
            item = await self._store.get(keys.entity(namespace_id, entity_id), deadline)
            if item is None:
                return TransactionPlan(None, [])
            before = entities.decode(item)
            after, event = revise_place(placing, before, now_ms)
            if after is None or event is None:  # also after a committed attempt without an answer
                return TransactionPlan(after, [])
            writes = [
                guarded.put(entities.encode(namespace_id, after, change.event_id), item),
                self._context.log(namespace_id, change, *event),
            ]
            return TransactionPlan(after, writes, change.event_id)

        entity = await self._context.commit(namespace_id, plan)
        self._context.listener.on_entity_read(namespace_id, entity_id, entity)
        return entity

    async def _in_batch(
        self, namespace_id: str, listed: list[Key], judged: set[str]
    ) -> list[Placed]:
        """Return the entities that a part of the index names, in its order.

        ``judged`` are the unregistered ids that an earlier bucket has shown.
        """
        buckets: dict[Key, BucketKey] = {}
        for key in listed:
            if key.sk == schema.sk_state():
                bucket = schema.parse_bucket_pk(key.pk)
                if bucket.shard_id == 0 and bucket.entity_id not in judged:
                    buckets[key] = bucket
        meta = {key: keys.entity(namespace_id, b.entity_id) for key, b in buckets.items()}
        registered = [key for key in listed if key.sk == schema.sk_meta()]
        items = await self._store.get_several([*registered, *meta.values()], consistent=True)
        unregistered = {b.entity_id for key, b in buckets.items() if meta[key] not in items}
        first_resources = await self._first_resources(namespace_id, sorted(unregistered))
        judged |= unregistered
        page: list[Placed] = []
        for key in listed:
            if key.sk == schema.sk_meta() and key in items:
                entity = entities.decode(items[key])
                page.append((entity.id, entity))
            elif key in buckets:
                entity_id, resource = buckets[key].entity_id, buckets[key].resource
                if first_resources.get(entity_id) == resource:
                    page.append((entities.bucket_cursor(entity_id, resource), Entity(entity_id)))
        return page

    async def _first_resources(
        self, namespace_id: str, entity_ids: list[str]
    ) -> dict[str, str | None]:
        """Return the first resource of each entity that has a bucket, by parallel queries."""
        first: dict[str, str | None] = {}
        for start in range(0, len(entity_ids), PARALLEL_QUERIES):
            some = entity_ids[start : start + PARALLEL_QUERIES]
            resources = await agather(
                self._context.parallel,
                *(lambda each=each: self._first_resource(namespace_id, each) for each in some),
            )
            first.update(zip(some, resources, strict=True))
        return first

    async def _first_resource(self, namespace_id: str, entity_id: str) -> str | None:
        query = keys.indexed_buckets(namespace_id, entity_id)._replace(page_size=1)
        items = await self._store.query(query).page()
        return schema.parse_bucket_pk(text(items[0]["PK"])).resource if items else None

    async def delete(
        self, namespace_id: str, entity_id: str, now_ms: int, principal: str | None
    ) -> bool:
        """Delete in one transaction if all items fit; otherwise in several, the entity in the last.

        The last transaction writes the audit event. An interrupted deletion is therefore not
        logged, and deleting the entity again completes it.
        """
        change = AuditedChange.by(principal, entity_id, now_ms)
        deleted = EntityItems()
        planned = EntityItems()

        async def plan(deadline: Deadline) -> TransactionPlan[bool | None]:
            nonlocal planned
            items, registry = await self._items(namespace_id, entity_id)
            if items.is_empty:
                return TransactionPlan(not deleted.is_empty, [])
            planned = items.first(MAX_ITEMS)
            days = self._context.usage_days
            writes = entity_items.deletions(namespace_id, planned, registry, days)
            later = self._store.deadline()
            if planned != items:
                return TransactionPlan(None, writes, deadline=later)
            everything = deleted.plus(items)
            event = entity_deleted(
                everything.limit_resources[:MAX_NAMED], everything.bucket_resources[:MAX_NAMED]
            )
            log = self._context.log(namespace_id, change, *event)
            return TransactionPlan(True, [*writes, log], deadline=later)

        while (existed := await self._context.commit(namespace_id, plan)) is None:
            deleted = deleted.plus(planned)
        self._notify_cache(namespace_id, entity_id, deleted.plus(planned))
        return existed

    async def _items(self, namespace_id: str, entity_id: str) -> tuple[EntityItems, Item | None]:
        """Read the items of an entity, all shards of its buckets included, and the registry."""
        # Between these sort keys are the limits and the entity, but no usage.
        first, last = schema.sk_config(""), schema.sk_meta()
        partition = schema.pk_entity(namespace_id, entity_id)
        items = await self._store.query(ItemQuery(partition, Range(BETWEEN, first, last))).all()
        limits = [item for item in items if text(item["SK"]) != last]
        meta = [item for item in items if text(item["SK"]) == last]
        registry = keys.entity_config_resources(namespace_id)
        wanted = await self._likely_buckets(namespace_id, entity_id, limits)
        if limits:
            wanted.append(registry)
        buckets = await self._store.get_several(wanted, consistent=True)
        registry_item = buckets.pop(registry, None)
        while unread := siblings(buckets.values()).difference(buckets):  # the index lags
            more = await self._store.get_several(unread, consistent=True)
            if not more:
                break
            buckets |= more
        bucket_items = tuple(buckets[key] for key in sorted(buckets))
        return EntityItems(meta[0] if meta else None, tuple(limits), bucket_items), registry_item

    async def _likely_buckets(
        self, namespace_id: str, entity_id: str, limits: list[Item]
    ) -> list[Key]:
        """Return the buckets in the index, which may lag, and those that the limits suggest."""
        indexed = await self._store.query(keys.indexed_buckets(namespace_id, entity_id)).all()
        likely = [
            keys.bucket(namespace_id, entity_id, resource)
            for resource in EntityItems(limits=tuple(limits)).limit_resources
            if resource != DEFAULT_RESOURCE
        ]
        return [*map(Key.of, indexed), *likely]

    def _notify_cache(self, namespace_id: str, entity_id: str, deleted: EntityItems) -> None:
        listener = self._context.listener
        listener.on_entity_read(namespace_id, entity_id, None)
        for resource in deleted.bucket_resources:
            listener.on_bucket_read(namespace_id, entity_id, resource, None)
