"""Keys of the items in the table."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter.items.stored.attributes import Item, s, text
from zae_limiter.items.stored.query import PREFIX, ItemQuery, Range
from zae_limiter.naming import RESERVED_NAMESPACE


class BucketId(NamedTuple):
    """The identity of one bucket."""

    namespace_id: str
    entity_id: str
    resource: str

    def shard(self, number: int) -> ShardId:
        return ShardId(*self, number)


class ShardId(NamedTuple):
    """The identity of one item of a bucket. Every bucket has shard 0; a split one has others."""

    namespace_id: str
    entity_id: str
    resource: str
    number: int

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(*self[:3])


class Key(NamedTuple):
    """Partition and sort key."""

    pk: str
    sk: str

    @classmethod
    def of(cls, item: Item) -> Key:
        return cls(text(item["PK"]), text(item["SK"]))

    @property
    def attributes(self) -> Item:
        return {"PK": s(self.pk), "SK": s(self.sk)}


ItemsByKey = dict[Key, Item]


def namespace_index(namespace_id: str, key: Key, entity_id: str = "") -> Item:
    """Return an item's key in the index of its namespace, by its entity if it has one."""
    return {"GSI4PK": s(schema.gsi4_pk_namespace(namespace_id, entity_id or key.pk + key.sk))}


def system_config(namespace_id: str) -> Key:
    """Return the key of the system's defaults, which also hold the configuration version."""
    return Key(schema.pk_system(namespace_id), schema.sk_config())


def resource_config(namespace_id: str, resource: str) -> Key:
    return Key(schema.pk_resource(namespace_id, resource), schema.sk_config())


def entity_config(namespace_id: str, entity_id: str, resource: str) -> Key:
    return Key(schema.pk_entity(namespace_id, entity_id), schema.sk_config(resource))


def resources(namespace_id: str) -> Key:
    """Return the key of the registry of resources with defaults."""
    return Key(schema.pk_system(namespace_id), schema.sk_resources())


def resources_in_use(namespace_id: str) -> Key:
    """Return the key of the registry of resources that buckets were created on."""
    return Key(schema.pk_system(namespace_id), schema.sk_resources_in_use())


def entity_config_resources(namespace_id: str) -> Key:
    """Return the key of the registry of resources that entities have limits on."""
    return Key(schema.pk_system(namespace_id), schema.sk_entity_config_resources())


def entity(namespace_id: str, entity_id: str) -> Key:
    return Key(schema.pk_entity(namespace_id, entity_id), schema.sk_meta())


@lru_cache(maxsize=8192)  # that of every charge
def bucket(namespace_id: str, entity_id: str, resource: str, shard_id: int = 0) -> Key:
    return Key(schema.pk_bucket(namespace_id, entity_id, resource, shard_id), schema.sk_state())


def audit_event(namespace_id: str, entity_id: str, event_id: str) -> Key:
    return Key(schema.pk_audit(namespace_id, entity_id), schema.sk_audit(event_id))


def record(namespace_id: str, key: str) -> Key:
    return Key(schema.pk_system(namespace_id), schema.sk_record(key))


def namespace_by_name(name: str) -> Key:
    return Key(schema.pk_system(RESERVED_NAMESPACE), schema.sk_namespace(name))


def namespace_by_id(namespace_id: str) -> Key:
    return Key(schema.pk_system(RESERVED_NAMESPACE), schema.sk_nsid(namespace_id))


def indexed_buckets(namespace_id: str, entity_id: str) -> ItemQuery:
    """Return the query of all shards of an entity's buckets, in the index of entities."""
    partition = schema.gsi3_pk_entity(namespace_id, entity_id)
    return ItemQuery(partition, Range(PREFIX, "BUCKET#"), index_name="GSI3")
