"""Entities, and all items that are deleted with one.

The item of an entity is ``{ns}/ENTITY#{id}``, ``#META``; children are found through GSI1.
"""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter._named import NamedTuple
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
from zae_limiter.dynamodb.items.transact_items import REVISION, Action
from zae_limiter.models.entity import Entity


def encode(namespace_id: str, entity: Entity, revision: str) -> Item:
    key = keys.entity(namespace_id, entity.id)
    item = {
        **key.attributes,
        **keys.namespace_index(namespace_id, key, entity.id),
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
    return {**key.attributes, **keys.namespace_index(namespace_id, key, entity_id)}


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
        """Return all if they fit into ``count`` actions; else what fits, without the entity."""
        from zae_limiter.dynamodb.items import removal  # not for a function that deletes nothing

        per_bucket = 1 + removal.MAX_ROWS  # its deletion, and storing its hours
        if len(self.limits) + per_bucket * len(self.buckets) <= count:
            return self
        limits = self.limits[:count]
        buckets = (count - len(limits)) // per_bucket
        return EntityItems(None, limits, self.buckets[:buckets])

    def plus(self, other: EntityItems) -> EntityItems:
        return EntityItems(
            self.meta or other.meta, self.limits + other.limits, self.buckets + other.buckets
        )


def deletions(
    namespace_id: str, items: EntityItems, registry_item: Item | None, usage_days: int
) -> list[Action]:
    """Return the actions that delete the items and uncount them in the registry of limits.

    What the buckets have counted is stored, to be kept for ``usage_days``.
    """
    from zae_limiter.dynamodb.items import removal

    writes = [actions.delete(item) for item in items.limits]
    if items.meta is not None:
        writes.append(actions.delete(items.meta))
    writes += [actions.delete_alike(item, removal.guards(item)) for item in items.buckets]
    writes += removal.stored_hours(items.buckets, usage_days)
    if items.limits:
        writes.append(actions.update(configs.version_bump(namespace_id)))
        registry = keys.entity_config_resources(namespace_id)
        uncounted = system.uncount_resources(registry, registry_item, items.limit_resources)
        if uncounted is not None:
            writes.append(actions.update(uncounted))
    return writes
