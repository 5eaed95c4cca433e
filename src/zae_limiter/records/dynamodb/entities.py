"""Entities: ``{ns}/ENTITY#{id}``, ``#META``; children are found through GSI1."""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter.models.entity import Entity
from zae_limiter.records.dynamodb import keys
from zae_limiter.records.dynamodb.actions import REVISION
from zae_limiter.records.dynamodb.attributes import (
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


def encode(namespace_id: str, entity: Entity, revision: str) -> Item:
    item = {
        **keys.entity(namespace_id, entity.id).item,
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


def index_position(namespace_id: str, entity_id: str) -> Item:
    """Where an entity stands in the index of its namespace, also if it is gone by now."""
    namespace = s(schema.gsi4_pk_namespace(namespace_id))
    return {**keys.entity(namespace_id, entity_id).item, "GSI4PK": namespace}
