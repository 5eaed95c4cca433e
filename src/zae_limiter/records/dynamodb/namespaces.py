"""The registry of namespaces, under the reserved namespace: a record by name, one by id.

The record by name exists while the namespace is active; the one by id until it is purged.
"""

from __future__ import annotations

from zae_limiter import schema
from zae_limiter.models.config import Namespace
from zae_limiter.naming import RESERVED_NAMESPACE
from zae_limiter.records.dynamodb import keys
from zae_limiter.records.dynamodb.attributes import Item, damaged, optional_text, s, text

ACTIVE, DELETED, PURGING = "active", "deleted", "purging"
ID_PREFIX = schema.sk_nsid("")
NAME_PREFIX = schema.sk_namespace("")


def encode_by_name(namespace: Namespace) -> Item:
    return {
        **keys.namespace_by_name(namespace.name).item,
        "GSI4PK": s(schema.gsi4_pk_namespace(RESERVED_NAMESPACE)),
        "namespace_id": s(namespace.namespace_id),
        "status": s(namespace.status),
        "created_at": s(namespace.created_at),
    }


def encode_by_id(namespace: Namespace) -> Item:
    item = {
        **keys.namespace_by_id(namespace.namespace_id).item,
        "GSI4PK": s(schema.gsi4_pk_namespace(RESERVED_NAMESPACE)),
        "namespace": s(namespace.name),
        "status": s(namespace.status),
        "created_at": s(namespace.created_at),
    }
    if namespace.deleted_at is not None:
        item["deleted_at"] = s(namespace.deleted_at)
    return item


def decode(item: Item) -> Namespace:
    """Either record."""
    try:
        sort_key = text(item["SK"])
        by_name = sort_key.startswith(NAME_PREFIX)
        return Namespace(
            text(item["namespace_id"]) if by_name else sort_key.removeprefix(ID_PREFIX),
            sort_key.removeprefix(NAME_PREFIX) if by_name else text(item["namespace"]),
            text(item["status"]),
            text(item["created_at"]),
            optional_text(item, "deleted_at"),
        )
    except KeyError as error:
        raise damaged("namespace", item, error) from error
