"""Items of the system partition ``{ns}/SYSTEM#``: namespaces and documents.

_/SYSTEM#      #NAMESPACE#{name}          id of an active namespace
_/SYSTEM#      #NSID#{namespace_id}       name and status of a namespace, until it is purged
{ns}/SYSTEM#   #VERSION, #PROVISIONER     documents: JSON text in one attribute, and ``rev``
"""

from __future__ import annotations

from typing import Any

from zae_limiter import schema
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import (
    DOCUMENT,
    REVISION,
    Item,
    damaged,
    document,
    optional_text,
    s,
    text,
)
from zae_limiter.models.entity import Namespace
from zae_limiter.naming import RESERVED_NAMESPACE

# --- namespaces

ID_PREFIX = schema.sk_nsid("")
NAME_PREFIX = schema.sk_namespace("")


def encode_by_name(namespace: Namespace) -> Item:
    key = keys.namespace_by_name(namespace.name)
    return {
        **key.attributes,
        **keys.namespace_index(RESERVED_NAMESPACE, key),
        "namespace_id": s(namespace.namespace_id),
        "status": s(namespace.status),
        "created_at": s(namespace.created_at),
    }


def encode_by_id(namespace: Namespace) -> Item:
    key = keys.namespace_by_id(namespace.namespace_id)
    item = {
        **key.attributes,
        **keys.namespace_index(RESERVED_NAMESPACE, key),
        "namespace": s(namespace.name),
        "status": s(namespace.status),
        "created_at": s(namespace.created_at),
    }
    if namespace.deleted_at is not None:
        item["deleted_at"] = s(namespace.deleted_at)
    return item


def decode_namespace(item: Item) -> Namespace:
    """Return the namespace of either item, by name or by id."""
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


# --- documents


def encode_document(namespace_id: str, key: str, value: dict[str, Any]) -> Item:
    record = keys.record(namespace_id, key)
    item = {
        **record.attributes,
        **keys.namespace_index(namespace_id, record),
        DOCUMENT: document(value),
    }
    revision = value.get("revision")
    return {**item, REVISION: s(revision)} if isinstance(revision, str) else item


def document_revision(item: Item | None) -> str | None:
    """Return the revision of a document; None if it has none, or there is no document."""
    return None if item is None else optional_text(item, REVISION)
