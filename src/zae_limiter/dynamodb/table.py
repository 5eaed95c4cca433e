"""The table: one for a whole stack, with four indexes, a stream and a time to live."""

from __future__ import annotations

from typing import Any, NamedTuple

from zae_limiter.naming import check_stack_name

TTL_ATTRIBUTE = "ttl"
READY = frozenset({"ACTIVE", "UPDATING"})


class Index(NamedTuple):
    """``sort`` may be missing. Those that contain buckets project keys only: an attribute that
    changes with an acquire would be paid for twice."""

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
    """The table is called like its stack."""
    return check_stack_name(stack)


def create_request(table: str, *, stream: bool = True) -> dict[str, Any]:
    """The body of CreateTable."""
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
    """The body of UpdateTimeToLive."""
    return {
        "TableName": table,
        "TimeToLiveSpecification": {"Enabled": True, "AttributeName": TTL_ATTRIBUTE},
    }


def _key_schema(partition: str, sort: str | None) -> list[dict[str, str]]:
    keys = [{"AttributeName": partition, "KeyType": "HASH"}]
    return keys if sort is None else [*keys, {"AttributeName": sort, "KeyType": "RANGE"}]
