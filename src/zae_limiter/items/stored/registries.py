"""Registries of resources in the system partition, each one item.

    {ns}/SYSTEM#   #RESOURCES                 resources with defaults, each 1
    {ns}/SYSTEM#   #ENTITY_CONFIG_RESOURCES   number of entities with limits on each resource
    {ns}/SYSTEM#   #RESOURCES_IN_USE          resources that buckets were created on, each 1

Each resource has an attribute ``r_{resource}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import Item, optional_integer
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import ItemUpdate

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


def count_resource(registry: Key, namespace_id: str, resource: str) -> ItemUpdate:
    """Count one more configuration level with limits on the resource."""
    update = ItemUpdate(registry)
    update.set_all(keys.namespace_index(namespace_id, registry))
    update.add(RESOURCE_PREFIX + resource, 1)
    return update


def register_resource(namespace_id: str, resource: str) -> ItemUpdate:
    """Add a resource to those in use; it stays there."""
    registry = keys.resources_in_use(namespace_id)
    update = ItemUpdate(registry)
    update.set_all(keys.namespace_index(namespace_id, registry))
    update.set(RESOURCE_PREFIX + resource, 1)
    return update


def uncount_resources(
    registry: Key, before: Item | None, resources: Iterable[str]
) -> ItemUpdate | None:
    """Count one level less for each of the resources; at zero the attribute is removed.

    Returns None if the registry counts none of them.
    """
    update, is_counted = ItemUpdate(registry), False
    for resource in resources:
        count, name = resource_count(before, resource), RESOURCE_PREFIX + resource
        if count <= 0:
            continue
        is_counted = True
        if count == 1:
            update.equal(name, 1)
            update.remove(name)
        else:
            update.more_than(name, 1)  # others are still counted
            update.add(name, -1)
    return update if is_counted else None


def recount_resources(
    namespace_id: str, registry: Key, before: Item | None, deltas: Mapping[str, int]
) -> ItemUpdate | None:
    """Change the counts of several resources in one update; None if no count changes.

    At zero the attribute is removed.
    """
    update, is_changed = ItemUpdate(registry), False
    for resource, delta in deltas.items():
        count, name = resource_count(before, resource), RESOURCE_PREFIX + resource
        if delta == 0 or (delta < 0 and count <= 0):
            continue
        is_changed = True
        if delta > 0:
            update.add(name, delta)
        elif count + delta <= 0:
            update.equal(name, count)
            update.remove(name)
        else:
            update.more_than(name, -delta)  # others are still counted
            update.add(name, delta)
    if not is_changed:
        return None
    update.set_all(keys.namespace_index(namespace_id, registry))
    return update
