"""Which resources have limits: one item with an attribute ``r_{resource}`` for each.

{ns}/SYSTEM#   #RESOURCES                 resources with defaults, each 1
{ns}/SYSTEM#   #ENTITY_CONFIG_RESOURCES   how many entities have limits on the resource
"""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter import schema
from zae_limiter.records.dynamodb.attributes import Item, n, optional_integer, s
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.records.dynamodb.update import Update

PREFIX = "r_"


def listed(item: Item | None) -> list[str]:
    """The resources that count at least once, sorted."""
    found = (name.removeprefix(PREFIX) for name in item or {} if name.startswith(PREFIX))
    return sorted(resource for resource in found if count(item, resource) > 0)


def count(item: Item | None, resource: str) -> int:
    return (optional_integer(item, PREFIX + resource) if item else None) or 0


def added(key: Key, namespace_id: str, resource: str) -> Update:
    """One more has limits on the resource."""
    update = Update(key.item)
    update.set("GSI4PK", s(schema.gsi4_pk_namespace(namespace_id)))
    update.add(PREFIX + resource, 1)
    return update


def removed(key: Key, before: Item | None, resources: Iterable[str]) -> Update | None:
    """One less has limits on each of the resources; whoever is the last removes the attribute.

    None if the registry knows nothing of them.
    """
    update, known = Update(key.item), False
    for resource in resources:
        counted, name = count(before, resource), PREFIX + resource
        if counted <= 0:
            continue
        known = True
        if counted == 1:
            update.require_equal(name, n(1))
            update.remove(name)
        else:
            still_others = f"{update.name(name)} > {update.number(1)}"
            update.require(still_others)
            update.add(name, -1)
    return update if known else None
