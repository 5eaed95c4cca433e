"""All items that are deleted with an entity."""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.items.stored import config_writes, keys, registries, removal
from zae_limiter.items.stored import guarded_writes as guarded
from zae_limiter.items.stored.attributes import Item, text
from zae_limiter.items.stored.update import ItemWrite


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
        """Return all items if they fit into ``count`` actions; else some, without the entity."""
        per_bucket = 1 + removal.MAX_ROWS  # one action deletes it, others store its hours
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
) -> list[ItemWrite]:
    """Return the actions that delete the items and uncount them in the registry of limits.

    The hours of the buckets are stored, to be kept for ``usage_days``.
    """
    writes: list[ItemWrite] = [guarded.delete(item) for item in items.limits]
    if items.meta is not None:
        writes.append(guarded.delete(items.meta))
    writes += [guarded.delete_alike(item, removal.guards(item)) for item in items.buckets]
    writes += removal.stored_hours(items.buckets, usage_days)
    if items.limits:
        writes.append(config_writes.version_bump(namespace_id))
        registry = keys.entity_config_resources(namespace_id)
        uncounted = registries.uncount_resources(registry, registry_item, items.limit_resources)
        if uncounted is not None:
            writes.append(uncounted)
    return writes
