"""Entities, each one item: ``{ns}/ENTITY#{id}``, ``#META``. GSI1 lists children."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import (
    REVISION,
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

    The position is that of the entity, or of the bucket that ``bucket_cursor`` names.
    """
    entity_id, delimiter, resource = cursor.partition("#")
    key = (
        keys.bucket(namespace_id, entity_id, resource)
        if delimiter
        else keys.entity(namespace_id, entity_id)
    )
    return {**key.attributes, **keys.namespace_index(namespace_id, key, entity_id)}
