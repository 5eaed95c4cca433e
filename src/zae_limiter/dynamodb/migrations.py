"""Migrations of the table: what each schema version changed, as rewrites of single items.

A rewrite reads one item and returns the updates that bring it to the next version, none if it has
that form. Each update has a condition that an item as it was read fulfils, so that any number of
runners, clients and repetitions may meet at an item. The runner is in
``_async/engines/dynamodb/migrating.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.dynamodb.items import bucket, keys, registries
from zae_limiter.dynamodb.items.attributes import Item
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.dynamodb.items.update_expression import UpdateExpression

USAGE = "#USAGE#"  # begins the sort key of an hour of usage

Rewrite = Callable[[Item], list[UpdateExpression]]


class Migration(NamedTuple):
    """One step, to ``version`` from the one before; ``begin`` returns the rewrite of a run."""

    version: int
    summary: str
    begin: Callable[[], Rewrite]


class PartitionedIndexes:
    """Version 2: keys of GSI2 and GSI4 have a partition; resources in use are registered.

    A bucket gets the hours of its usage with its next write, not here.
    """

    def __init__(self) -> None:
        self._registered: set[tuple[str, str]] = set()

    def __call__(self, item: Item) -> list[UpdateExpression]:
        updates = [update] if (update := _with_index_keys(item)) is not None else []
        key = Key.of(item)
        if key.sk == schema.sk_state():
            namespace_id, _, resource, _ = schema.parse_bucket_pk(key.pk)
            if (namespace_id, resource) not in self._registered:
                self._registered.add((namespace_id, resource))
                updates.append(registries.register_resource(namespace_id, resource))
        return updates


def _with_index_keys(item: Item) -> UpdateExpression | None:
    key = Key.of(item)
    changes = {
        name: value
        for name, value in _index_keys(key).items()
        if name in item and item[name] != value  # an item that is in no index stays in none
    }
    if not changes:
        return None
    update = UpdateExpression(key.attributes)
    for name, value in changes.items():
        update.require_equal(name, item[name])  # it was neither deleted nor rewritten meanwhile
        update.set(name, value)
    return update


def _index_keys(key: Key) -> Item:
    """Return an item's keys of the partitioned indexes, which its own key determines."""
    namespace_id, _, rest = key.pk.partition("/")
    kind, _, name = rest.partition("#")
    if kind == "BUCKET":
        return bucket.index_keys(*schema.parse_bucket_pk(key.pk))
    entity_id = name if kind in ("ENTITY", "AUDIT") else ""
    index_keys = keys.namespace_index(namespace_id, key, entity_id)
    if kind == "ENTITY" and key.sk.startswith(USAGE):
        resource = key.sk.removeprefix(USAGE).partition("#")[0]
        index_keys["GSI2PK"] = {"S": schema.gsi2_pk_resource(namespace_id, resource, entity_id)}
    return index_keys


MIGRATIONS: tuple[Migration, ...] = (
    Migration(2, "index keys by partition, registry of resources in use", PartitionedIndexes),
)


def pending(version: int) -> list[Migration]:
    """Return the migrations that items of a version still need, in order."""
    return [migration for migration in MIGRATIONS if migration.version > version]
