"""Items of the system partition ``{ns}/SYSTEM#``: namespaces, resource registries, documents.

    _/SYSTEM#      #NAMESPACE#{name}          id of an active namespace
    _/SYSTEM#      #NSID#{namespace_id}       name and status of a namespace, until it is purged
    {ns}/SYSTEM#   #RESOURCES                 resources with defaults, each 1
    {ns}/SYSTEM#   #ENTITY_CONFIG_RESOURCES   how many entities have limits on each resource
    {ns}/SYSTEM#   #RESOURCES_IN_USE          resources that buckets were created on, each 1
    {ns}/SYSTEM#   #VERSION, #PROVISIONER     documents: JSON text in one attribute, and ``rev``

A registry is one item with an attribute ``r_{resource}`` for each resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zae_limiter import schema
from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items.attributes import (
    Item,
    damaged,
    document,
    n,
    optional_integer,
    optional_text,
    parsed,
    s,
    text,
)
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.dynamodb.items.transact_items import REVISION
from zae_limiter.dynamodb.items.update_expression import UpdateExpression
from zae_limiter.models.entity import Namespace
from zae_limiter.naming import RESERVED_NAMESPACE

# --- namespaces

ACTIVE, DELETED, PURGING = "active", "deleted", "purging"
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


# --- registries of resources

RESOURCE_PREFIX = "r_"


def registered_resources(item: Item | None) -> list[str]:
    """Return the resources of a registry that are counted at least once, sorted."""
    resources = (
        name.removeprefix(RESOURCE_PREFIX)
        for name in item or {}
        if name.startswith(RESOURCE_PREFIX)
    )
    return sorted(resource for resource in resources if resource_count(item, resource) > 0)


def resource_count(item: Item | None, resource: str) -> int:
    return (optional_integer(item, RESOURCE_PREFIX + resource) if item else None) or 0


def count_resource(registry: Key, namespace_id: str, resource: str) -> UpdateExpression:
    """Count one more configuration level with limits on the resource."""
    update = UpdateExpression(registry.attributes)
    update.set_all(keys.namespace_index(namespace_id, registry))
    update.add(RESOURCE_PREFIX + resource, 1)
    return update


def register_resource(namespace_id: str, resource: str) -> UpdateExpression:
    """Add a resource to those in use; it stays there."""
    registry = keys.resources_in_use(namespace_id)
    update = UpdateExpression(registry.attributes)
    update.set_all(keys.namespace_index(namespace_id, registry))
    update.set_number(RESOURCE_PREFIX + resource, 1)
    return update


def uncount_resources(
    registry: Key, before: Item | None, resources: Iterable[str]
) -> UpdateExpression | None:
    """Count one level less for each of the resources; at zero the attribute is removed.

    None if the registry counts none of them.
    """
    update, is_counted = UpdateExpression(registry.attributes), False
    for resource in resources:
        count, name = resource_count(before, resource), RESOURCE_PREFIX + resource
        if count <= 0:
            continue
        is_counted = True
        if count == 1:
            update.require_equal(name, n(1))
            update.remove(name)
        else:
            still_others = f"{update.name(name)} > {update.number(1)}"
            update.require(still_others)
            update.add(name, -1)
    return update if is_counted else None


def recount_resources(
    namespace_id: str, registry: Key, before: Item | None, deltas: Mapping[str, int]
) -> UpdateExpression | None:
    """Change the counts of several resources in one update; None if no count changes.

    At zero the attribute is removed.
    """
    update, is_changed = UpdateExpression(registry.attributes), False
    for resource, delta in deltas.items():
        count, name = resource_count(before, resource), RESOURCE_PREFIX + resource
        if delta == 0 or (delta < 0 and count <= 0):
            continue
        is_changed = True
        if delta > 0:
            update.add(name, delta)
        elif count + delta <= 0:
            update.require_equal(name, n(count))
            update.remove(name)
        else:
            still_others = f"{update.name(name)} > {update.number(-delta)}"
            update.require(still_others)
            update.add(name, delta)
    if not is_changed:
        return None
    update.set_all(keys.namespace_index(namespace_id, registry))
    return update


# --- documents

BODY = "document"


def encode_document(namespace_id: str, key: str, value: dict[str, Any]) -> Item:
    record = keys.record(namespace_id, key)
    item = {
        **record.attributes,
        **keys.namespace_index(namespace_id, record),
        BODY: document(value),
    }
    revision = value.get("revision")
    return {**item, REVISION: s(revision)} if isinstance(revision, str) else item


def document_revision(item: Item | None) -> str | None:
    """Return the revision of a document; None if it has none, or there is no document."""
    return None if item is None else optional_text(item, REVISION)


def decode_document(item: Item) -> dict[str, Any]:
    try:
        return parsed(item[BODY])
    except (KeyError, ValueError) as error:
        raise damaged("document", item, error) from error
