"""Entities, and all items that are deleted with one.

The item of an entity is ``{ns}/ENTITY#{id}``, ``#META``; children are found through GSI1.
"""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.dynamodb.items import configs, keys, system
from zae_limiter.dynamodb.items import transact_items as actions
from zae_limiter.dynamodb.items.attributes import (
    Item,
    boolean,
    damaged,
    document,
    flag,
    optional_text,
    parsed,
    s,
    text,
)
from zae_limiter.dynamodb.items.bucket import GENERATION, SHARDS
from zae_limiter.dynamodb.items.transact_items import REVISION, Action
from zae_limiter.models.entity import Entity


def encode(namespace_id: str, entity: Entity, revision: str) -> Item:
    item = {
        **keys.entity(namespace_id, entity.id).attributes,
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id)),
        REVISION: s(revision),
        "entity_id": s(entity.id),
        "cascade": flag(entity.cascade),
        "metadata": document(dict(entity.metadata)),
        "created_at": s(entity.created_at),
    }
    if entity.name is not None:
        item["name"] = s(entity.name)
    if entity.parent_id is not None:
        item["parent_id"] = s(entity.parent_id)
        item["GSI1PK"] = s(schema.gsi1_pk_parent(namespace_id, entity.parent_id))
        item["GSI1SK"] = s(schema.gsi1_sk_child(entity.id))
    return item


def decode(item: Item) -> Entity:
    try:
        return Entity(
            id=text(item["entity_id"]),
            name=optional_text(item, "name"),
            parent_id=optional_text(item, "parent_id"),
            cascade=boolean(item["cascade"]) if "cascade" in item else False,
            metadata=parsed(item["metadata"]) if "metadata" in item else {},
            created_at=optional_text(item, "created_at") or "",
        )
    except (KeyError, ValueError) as error:
        raise damaged("entity", item, error) from error


def bucket_cursor(entity_id: str, resource: str) -> str:
    """Return the cursor after an entity that has buckets but was never created."""
    return f"{entity_id}#{resource}"


def index_position(namespace_id: str, cursor: str) -> Item:
    """Return a cursor's position in the index of its namespace, also if its item was deleted.

    That of the entity, or of the bucket that ``bucket_cursor`` names.
    """
    entity_id, delimiter, resource = cursor.partition("#")
    key = (
        keys.bucket(namespace_id, entity_id, resource)
        if delimiter
        else keys.entity(namespace_id, entity_id)
    )
    return {**key.attributes, "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id))}


class EntityItems(NamedTuple):
    """Items that are deleted with an entity: itself, its limits, and its buckets' shards."""

    meta: Item | None = None
    limits: tuple[Item, ...] = ()
    buckets: tuple[Item, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == EntityItems()

    @property
    def limit_resources(self) -> list[str]:
        prefix = schema.sk_config("")
        return sorted(text(item["SK"]).removeprefix(prefix) for item in self.limits)

    @property
    def bucket_resources(self) -> list[str]:
        return sorted({schema.parse_bucket_pk(text(item["PK"])).resource for item in self.buckets})

    def first(self, count: int) -> EntityItems:
        """Return all if they fit; else ``count`` limits and buckets, without the entity itself."""
        if len(self.limits) + len(self.buckets) <= count:
            return self
        limits = self.limits[:count]
        return EntityItems(None, limits, self.buckets[: count - len(limits)])

    def plus(self, other: EntityItems) -> EntityItems:
        return EntityItems(
            self.meta or other.meta, self.limits + other.limits, self.buckets + other.buckets
        )


def deletions(namespace_id: str, items: EntityItems, registry_item: Item | None) -> list[Action]:
    """Return the actions that delete the items and uncount them in the registry of limits."""
    writes = [actions.delete(item) for item in items.limits]
    if items.meta is not None:
        writes.append(actions.delete(items.meta))
    # Not if a shard was split or merged since it was read: its new sibling would be left behind.
    writes += [actions.delete_alike(item, (SHARDS, GENERATION)) for item in items.buckets]
    if items.limits:
        writes.append(actions.update(configs.version_bump(namespace_id)))
        registry = keys.entity_config_resources(namespace_id)
        uncounted = system.uncount_resources(registry, registry_item, items.limit_resources)
        if uncounted is not None:
            writes.append(actions.update(uncounted))
    return writes
