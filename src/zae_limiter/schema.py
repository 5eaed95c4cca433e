"""The documented keys of the DynamoDB table. Every key starts with ``{namespace id}/``."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD

__all__ = [
    "PARTITIONS",
    "RESERVED_NAMESPACE",
    "BucketKey",
    "gsi1_pk_parent",
    "gsi1_sk_child",
    "gsi2_partitions",
    "gsi2_pk_resource",
    "gsi2_sk_bucket",
    "gsi2_sk_usage",
    "gsi3_pk_entity",
    "gsi3_pk_entity_config",
    "gsi3_sk_bucket",
    "gsi3_sk_entity_config",
    "gsi4_partitions",
    "gsi4_pk_namespace",
    "parse_bucket_pk",
    "partition_of",
    "pk_audit",
    "pk_bucket",
    "pk_entity",
    "pk_resource",
    "pk_system",
    "sk_audit",
    "sk_config",
    "sk_entity_config_resources",
    "sk_meta",
    "sk_namespace",
    "sk_nsid",
    "sk_provisioner",
    "sk_record",
    "sk_resources",
    "sk_resources_in_use",
    "sk_state",
    "sk_usage",
    "sk_version",
]

# --- partition keys


def pk_system(namespace_id: str) -> str:
    """The partition key of items of a namespace that belong to no entity and no resource."""
    return f"{namespace_id}/SYSTEM#"


def pk_resource(namespace_id: str, resource: str) -> str:
    """The partition key of the defaults of a resource."""
    return f"{namespace_id}/RESOURCE#{resource}"


def pk_entity(namespace_id: str, entity_id: str) -> str:
    """The partition key of an entity, its limits and its usage."""
    return f"{namespace_id}/ENTITY#{entity_id}"


def pk_bucket(namespace_id: str, entity_id: str, resource: str, shard_id: int) -> str:
    """The partition key of one shard of a bucket."""
    return f"{namespace_id}/BUCKET#{entity_id}#{resource}#{shard_id}"


def pk_audit(namespace_id: str, entity_id: str) -> str:
    """The partition key of the audit events about an entity."""
    return f"{namespace_id}/AUDIT#{entity_id}"


class BucketKey(NamedTuple):
    """The parts of a bucket's partition key."""

    namespace_id: str
    entity_id: str
    resource: str
    shard_id: int


def parse_bucket_pk(pk: str) -> BucketKey:
    """Parse the partition key of a bucket; raise ValidationError for any other key."""
    namespace_id, slash, rest = pk.partition("/")
    parts = rest.split("#")
    if not slash or len(parts) != 4 or parts[0] != "BUCKET" or not parts[3].isdecimal():
        raise ValidationError("pk", pk, "is not the key of a bucket")
    return BucketKey(namespace_id, parts[1], parts[2], int(parts[3]))


# --- sort keys


def sk_meta() -> str:
    """The sort key of an entity itself."""
    return "#META"


def sk_state() -> str:
    """The sort key of a bucket."""
    return "#STATE"


def sk_config(resource: str | None = None) -> str:
    """The sort key of limits; ``resource`` is for the limits of an entity on that resource."""
    return "#CONFIG" if resource is None else f"#CONFIG#{resource}"


def sk_resources() -> str:
    """The sort key of the registry of resources that have defaults."""
    return "#RESOURCES"


def sk_entity_config_resources() -> str:
    """The sort key of the registry of resources that entities have limits on, with counts."""
    return "#ENTITY_CONFIG_RESOURCES"


def sk_resources_in_use() -> str:
    """The sort key of the registry of resources that buckets were created on."""
    return "#RESOURCES_IN_USE"


def sk_version() -> str:
    """The sort key of the version record."""
    return "#VERSION"


def sk_provisioner(page: int = 0) -> str:
    """The sort key of a page of the provisioner's state, by default the first page."""
    return f"#PROVISIONER#{page}" if page else "#PROVISIONER"


def sk_record(key: str) -> str:
    """The sort key of a JSON document: the version record, the provisioner's state, or another."""
    name, _, page = key.partition("#")
    if name == "provisioner" and (not page or page.isdecimal()):
        return sk_provisioner(int(page or 0))
    return sk_version() if key == VERSION_RECORD else f"#RECORD#{key}"


def sk_namespace(name: str) -> str:
    """The sort key of the registration of a namespace by name."""
    return f"#NAMESPACE#{name}"


def sk_nsid(namespace_id: str) -> str:
    """The sort key of the registration of a namespace by id."""
    return f"#NSID#{namespace_id}"


def sk_usage(*parts: object) -> str:
    """The sort key of the usage of a bucket: its resource, the day (2026-01-31) and the shard.

    With fewer parts, the beginning that all such keys share.
    """
    return "#".join(("#USAGE", *map(str, parts)))


def sk_audit(event_id: str) -> str:
    """The sort key of an audit event."""
    return f"#AUDIT#{event_id}"


# --- keys of the indexes

# A key of an index takes about 1,000 new entries a second, and if an index throttles, so does the
# table. 32 keys take 12,000 turned hours a second, or 6,000 new buckets of entities that are
# registered at the same time (four entries each), with a quarter to spare. Stored keys depend on
# this number, so another number needs another schema version.
PARTITIONS = 32


def partition_of(key: str) -> int:
    """Return the index partition of an entity, or of an item that belongs to no entity.

    All processes and versions agree on it. Ids that are numbered in sequence are spread evenly.
    """
    return crc32(key.encode()) % PARTITIONS


def gsi1_pk_parent(namespace_id: str, parent_id: str) -> str:
    """The index partition that lists the children of an entity."""
    return f"{namespace_id}/PARENT#{parent_id}"


def gsi1_sk_child(entity_id: str) -> str:
    """The sort key of a child in the index."""
    return f"CHILD#{entity_id}"


def gsi2_pk_resource(namespace_id: str, resource: str, entity_id: str) -> str:
    """The index partition that lists this entity's buckets and usage on a resource."""
    return f"{namespace_id}/RESOURCE#{resource}#{partition_of(entity_id)}"


def gsi2_partitions(namespace_id: str, resource: str) -> list[str]:
    """All index partitions of a resource."""
    return [f"{namespace_id}/RESOURCE#{resource}#{number}" for number in range(PARTITIONS)]


def gsi2_sk_bucket(entity_id: str, shard_id: int) -> str:
    """The sort key of a bucket among those of its resource."""
    return f"BUCKET#{entity_id}#{shard_id}"


def gsi2_sk_usage(day: str, entity_id: str = "") -> str:
    """The sort key of a day of usage among those of its resource; all shards share it.

    Without an entity it comes before all entities of the day.
    """
    return f"USAGE#{day}#{entity_id}" if entity_id else f"USAGE#{day}"


def gsi3_pk_entity(namespace_id: str, entity_id: str) -> str:
    """The index partition that lists the buckets of an entity."""
    return f"{namespace_id}/ENTITY#{entity_id}"


def gsi3_sk_bucket(resource: str, shard_id: int) -> str:
    """The sort key of a bucket among those of its entity."""
    return f"BUCKET#{resource}#{shard_id}"


def gsi3_pk_entity_config(namespace_id: str, resource: str) -> str:
    """The index partition that lists the entities with limits on a resource."""
    return f"{namespace_id}/ENTITY_CONFIG#{resource}"


def gsi3_sk_entity_config(entity_id: str) -> str:
    """The sort key of an entity with limits: its id, so that a page may start after any id."""
    return entity_id


def gsi4_pk_namespace(namespace_id: str, key: str) -> str:
    """The index partition that lists an item of a namespace.

    ``key`` is the id of the entity that the item belongs to, or the item's own key without one.
    """
    return f"{namespace_id}/ALL#{partition_of(key)}"


def gsi4_partitions(namespace_id: str) -> list[str]:
    """All index partitions of a namespace."""
    return [f"{namespace_id}/ALL#{number}" for number in range(PARTITIONS)]
