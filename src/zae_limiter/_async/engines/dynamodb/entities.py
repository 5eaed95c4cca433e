"""Entities."""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.reading import MOST_KEYS, Query, batch_get, get_item
from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter._async.engines.dynamodb.transactions import MOST_ACTIONS, Plan
from zae_limiter.exceptions import EntityExistsError, ValidationError
from zae_limiter.models.audit import AuditAction
from zae_limiter.models.entity import Entity
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.records.dynamodb import actions, configs, entities, keys, registries
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.attributes import Item, s, text
from zae_limiter.records.dynamodb.audit import Change
from zae_limiter.records.dynamodb.bucket_item import GENERATION, SHARDS
from zae_limiter.records.dynamodb.bucket_shards import siblings
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.transport.deadline import Deadline

MOST_CHARACTERS = 390_000  # an item ends at 400 KB
BESIDES = 4  # actions of a deletion besides limits and buckets: entity, registry, version, event
FITS = MOST_ACTIONS - BESIDES
NAMED_AT_MOST = 1000  # resources in the event of a deletion
LEAST_LOOKED_AT = 1000  # entries of the namespace's index at once, of which some are entities


class DynamoEntities:
    """Each change and its audit event are one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = store.client

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        change = Change.by(principal, entity.id, now_ms)
        item = entities.encode(namespace_id, entity, change.event_id)
        if len(text(item["metadata"])) > MOST_CHARACTERS:
            raise ValidationError(
                "metadata", len(entity.metadata), f"must have at most {MOST_CHARACTERS} characters"
            )
        details = {
            "name": entity.name,
            "parent_id": entity.parent_id,
            "cascade": entity.cascade,
            "metadata": entity.metadata,
        }
        log = self._store.log(namespace_id, change, AuditAction.ENTITY_CREATED, details)
        writes = [actions.put_new(item), log]
        overtaken = False

        async def plan(deadline: Deadline) -> Plan[None]:
            nonlocal overtaken
            key = keys.entity(namespace_id, entity.id)
            if overtaken and await get_item(self._client, key, deadline) is not None:
                raise EntityExistsError(entity.id)
            overtaken = True
            return Plan(None, writes, change.event_id)

        await self._store.commit(namespace_id, plan)
        self._store.primer.saw_entity(namespace_id, entity.id, entity)

    async def get(self, namespace_id: str, entity_id: str) -> Entity | None:
        item = await get_item(self._client, keys.entity(namespace_id, entity_id))
        return None if item is None else entities.decode(item)

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        return await self.page(namespace_id, parent_id, "", None)

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> list[Entity]:
        if parent_id is None:
            return await self._page_of_all(namespace_id, after, limit)
        condition = "GSI1PK = :parent AND GSI1SK > :after"
        values = {
            ":parent": s(schema.gsi1_pk_parent(namespace_id, parent_id)),
            ":after": s(schema.gsi1_sk_child(after)),
        }
        query = Query(self._client, condition, values, index="GSI1", page_size=limit)
        return [entities.decode(item) for item in await query.all(limit)]

    async def _page_of_all(self, namespace_id: str, after: str, limit: int | None) -> list[Entity]:
        """In the order of the namespace's index, which says no more than the keys."""
        query = Query(
            self._client,
            "GSI4PK = :namespace",
            {
                ":namespace": s(schema.gsi4_pk_namespace(namespace_id)),
                ":meta": s(schema.sk_meta()),
            },
            index="GSI4",
            only="SK = :meta",
            page_size=None if limit is None else max(limit, LEAST_LOOKED_AT),
            after=entities.index_position(namespace_id, after) if after else None,
        )
        found: list[Entity] = []
        while not query.is_over:
            listed = [Key.of(item) for item in await query.page()]
            for start in range(0, len(listed), MOST_KEYS):
                batch = listed[start : start + MOST_KEYS]
                items = await batch_get(self._client, batch, consistent=True)
                found += [entities.decode(items[key]) for key in batch if key in items]
                if limit is not None and len(found) >= limit:
                    return found[:limit]
        return found

    async def delete(
        self, namespace_id: str, entity_id: str, now_ms: int, principal: str | None
    ) -> bool:
        """In one transaction, as long as it fits; what does not is removed before.

        So an interrupted deletion has not been logged, and is taken up by the next one.
        """
        change = Change.by(principal, entity_id, now_ms)
        gone = Holdings()
        planned = Holdings()

        async def plan(deadline: Deadline) -> Plan[bool | None]:
            nonlocal planned
            held, registry = await self._holdings(namespace_id, entity_id)
            if held.is_empty:
                return Plan(not gone.is_empty, [])
            planned = held.some(FITS)
            writes = _removals(namespace_id, planned, registry)
            later = self._client.deadline()
            if planned != held:
                return Plan(None, writes, deadline=later)
            everything = gone.plus(held)
            details = {
                "limits_of": everything.limits_of[:NAMED_AT_MOST],
                "buckets_of": everything.buckets_of[:NAMED_AT_MOST],
            }
            log = self._store.log(namespace_id, change, AuditAction.ENTITY_DELETED, details)
            return Plan(True, [*writes, log], deadline=later)

        while (deleted := await self._store.commit(namespace_id, plan)) is None:
            gone = gone.plus(planned)
        self._forget(namespace_id, entity_id, gone.plus(planned))
        return deleted

    async def _holdings(self, namespace_id: str, entity_id: str) -> tuple[Holdings, Item | None]:
        """The entity, its limits, and all shards of its buckets; and the registry of limits."""
        # Between these stand the limits and the entity itself, and no usage.
        first, last = schema.sk_config(""), schema.sk_meta()
        partition = s(schema.pk_entity(namespace_id, entity_id))
        values = {":pk": partition, ":first": s(first), ":last": s(last)}
        query = Query(self._client, "PK = :pk AND SK BETWEEN :first AND :last", values)
        items = await query.all()
        limits = [item for item in items if text(item["SK"]) != last]
        meta = [item for item in items if text(item["SK"]) == last]
        registry = keys.entity_config_resources(namespace_id)
        asked = await self._likely_buckets(namespace_id, entity_id, limits)
        if limits:
            asked.append(registry)
        found = await batch_get(self._client, asked, consistent=True)
        registered = found.pop(registry, None)
        while unseen := siblings(found.values()).difference(found):  # the index lags
            more = await batch_get(self._client, unseen, consistent=True)
            if not more:
                break
            found |= more
        buckets = tuple(found[key] for key in sorted(found))
        return Holdings(meta[0] if meta else None, tuple(limits), buckets), registered

    async def _likely_buckets(
        self, namespace_id: str, entity_id: str, limits: list[Item]
    ) -> list[Key]:
        """Those that the index knows; it may lag, so those under own limits are added."""
        condition = "GSI3PK = :entity AND begins_with(GSI3SK, :bucket)"
        of_entity = s(schema.gsi3_pk_entity(namespace_id, entity_id))
        values = {":entity": of_entity, ":bucket": s("BUCKET#")}
        indexed = await Query(self._client, condition, values, index="GSI3").all()
        likely = [
            keys.bucket(namespace_id, entity_id, resource)
            for resource in Holdings(limits=tuple(limits)).limits_of
            if resource != DEFAULT_RESOURCE
        ]
        return [*map(Key.of, indexed), *likely]

    def _forget(self, namespace_id: str, entity_id: str, gone: Holdings) -> None:
        primer = self._store.primer
        primer.saw_entity(namespace_id, entity_id, None)
        for resource in gone.buckets_of:
            primer.saw_bucket(namespace_id, entity_id, resource, None)


class Holdings(NamedTuple):
    """What goes with an entity."""

    meta: Item | None = None
    limits: tuple[Item, ...] = ()
    buckets: tuple[Item, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == Holdings()

    @property
    def limits_of(self) -> list[str]:
        prefix = schema.sk_config("")
        return sorted(text(item["SK"]).removeprefix(prefix) for item in self.limits)

    @property
    def buckets_of(self) -> list[str]:
        return sorted({schema.parse_bucket_pk(text(item["PK"])).resource for item in self.buckets})

    def some(self, most: int) -> Holdings:
        """All, if they are not more; else a part without the entity, which goes last."""
        if len(self.limits) + len(self.buckets) <= most:
            return self
        limits = self.limits[:most]
        return Holdings(None, limits, self.buckets[: most - len(limits)])

    def plus(self, other: Holdings) -> Holdings:
        return Holdings(
            self.meta or other.meta, self.limits + other.limits, self.buckets + other.buckets
        )


def _removals(namespace_id: str, held: Holdings, registry: Item | None) -> list[Action]:
    writes = [actions.delete(item) for item in held.limits]
    if held.meta is not None:
        writes.append(actions.delete(held.meta))
    # Not while they are split or merged: what that makes of them would stay behind.
    writes += [actions.delete_alike(item, (SHARDS, GENERATION)) for item in held.buckets]
    if held.limits:
        writes.append(actions.update(configs.version_bump(namespace_id)))
        registry_key = keys.entity_config_resources(namespace_id)
        counted = registries.removed(registry_key, registry, held.limits_of)
        if counted is not None:
            writes.append(actions.update(counted))
    return writes
