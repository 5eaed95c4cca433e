"""The table: one per stack, with four indexes, a stream and a TTL; and its version record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter._version import __version__
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.naming import check_stack_name

SCHEMA_VERSION = 1  # raised by a change that older clients would misread
TTL_ATTRIBUTE = "ttl"
READY = frozenset({"ACTIVE", "UPDATING"})  # states in which items can be read and written


class Index(NamedTuple):
    """A global secondary index; ``sort`` is None if it has no sort key.

    An index that contains buckets projects keys only: each write of an attribute that it
    projects is paid for a second time.
    """

    name: str
    partition: str
    sort: str | None
    projection: str = "KEYS_ONLY"


INDEXES = (
    Index("GSI1", "GSI1PK", "GSI1SK", "ALL"),  # children of a parent
    Index("GSI2", "GSI2PK", "GSI2SK"),  # buckets and usage of a resource
    Index("GSI3", "GSI3PK", "GSI3SK"),  # buckets of an entity, entities with limits of their own
    Index("GSI4", "GSI4PK", None),  # everything of a namespace
)


def table_name(stack: str) -> str:
    """Return the name of a stack's table, which is the stack's."""
    return check_stack_name(stack)


def create_request(table: str, *, stream: bool = True) -> dict[str, Any]:
    """Return the body of CreateTable."""
    names = ["PK", "SK", *(name for index in INDEXES for name in index[1:3] if name is not None)]
    request: dict[str, Any] = {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in names],
        "KeySchema": _key_schema("PK", "SK"),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.partition, index.sort),
                "Projection": {"ProjectionType": index.projection},
            }
            for index in INDEXES
        ],
    }
    if stream:
        request["StreamSpecification"] = {
            "StreamEnabled": True,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
    return request


def ttl_request(table: str) -> dict[str, Any]:
    """Return the body of UpdateTimeToLive."""
    return {
        "TableName": table,
        "TimeToLiveSpecification": {"Enabled": True, "AttributeName": TTL_ATTRIBUTE},
    }


def new_version_record() -> dict[str, Any]:
    """Return the document that says which schema a table has."""
    return {"schema_version": SCHEMA_VERSION, "client_version": __version__}


def check_version_record(record: Mapping[str, Any], table: str) -> None:
    """Raise IncompatibleSchemaError for a table that only a newer version understands."""
    version = record.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise IncompatibleSchemaError(
            version, SCHEMA_VERSION, f"update zae-limiter to use table {table!r}"
        )


def _key_schema(partition: str, sort: str | None) -> list[dict[str, str]]:
    key_schema = [{"AttributeName": partition, "KeyType": "HASH"}]
    if sort is not None:
        key_schema.append({"AttributeName": sort, "KeyType": "RANGE"})
    return key_schema
