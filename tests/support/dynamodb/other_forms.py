"""Tables in the forms that the documents describe, which this version does not write.

``composite`` is the form of the project reference: keys begin with the id of a namespace, and one
item holds all limits of a level. ``per-limit`` is the older form of the architecture page: keys
have no namespace, and each limit is an item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from tests.support.dynamodb.shared import shared_endpoint
from zae_limiter._sync.engines.dynamodb.client import DynamoClient

NAMESPACE_ID = "a7x3kq"
AT_ONCE = 25  # items of one BatchWriteItem

Item = dict[str, dict[str, Any]]


def item(pk: str, sk: str, **attributes: Any) -> Item:
    """Return an item; text, numbers and flags get their types."""
    return {"PK": {"S": pk}, "SK": {"S": sk}, **{k: _typed(v) for k, v in attributes.items()}}


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):  # typed already
        return value
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"N": str(value)} if isinstance(value, int) else {"S": value}


# --- the form of the project reference


def namespaces(name: str = "default", namespace_id: str = NAMESPACE_ID) -> list[Item]:
    common = {"status": "active", "created_at": "2025-01-01T00:00:00Z", "GSI4PK": "_"}
    return [
        item("_/SYSTEM#", f"#NAMESPACE#{name}", namespace_id=namespace_id, **common),
        item("_/SYSTEM#", f"#NSID#{namespace_id}", namespace=name, **common),
    ]


def version(pk: str = "_/SYSTEM#") -> Item:
    return item(pk, "#VERSION", schema_version="0.9.0", lambda_version="0.9.1")


def limits(**numbers: tuple[int, int, int]) -> dict[str, int]:
    """Return the attributes of limits: capacity, refill amount and period."""
    parts = ("cp", "ra", "rp")
    return {
        f"l_{name}_{part}": value
        for name, values in numbers.items()
        for part, value in zip(parts, values, strict=True)
    }


def config(kind: str, sk: str = "#CONFIG", ns: str = NAMESPACE_ID, **attributes: Any) -> Item:
    return item(f"{ns}/{kind}", sk, GSI4PK=ns, config_version=3, **attributes)


def entity(entity_id: str, ns: str = NAMESPACE_ID, **attributes: Any) -> Item:
    return item(f"{ns}/ENTITY#{entity_id}", "#META", entity_id=entity_id, GSI4PK=ns, **attributes)


def bucket(entity_id: str, resource: str, ns: str = NAMESPACE_ID, shard: int = 0) -> Item:
    return item(
        f"{ns}/BUCKET#{entity_id}#{resource}#{shard}",
        "#STATE",
        GSI2PK=f"{ns}/RESOURCE#{resource}",
        GSI2SK=f"BUCKET#{entity_id}#{shard}",
        GSI3PK=f"{ns}/ENTITY#{entity_id}",
        GSI3SK=f"BUCKET#{resource}#{shard}",
        GSI4PK=ns,
        b_rpm_tk=95_000,
        b_wcu_tk=999_000,
        rf=1_735_689_600_000,
        shard_count=1,
        cascade=False,
    )


# --- the older form


def per_limit(entity_id: str, resource: str, name: str, *numbers: int) -> Item:
    """Return a limit: capacity, burst and refill amount in millitokens, period in seconds."""
    names = ("capacity", "burst", "refill_amount", "refill_period")
    values = dict(zip(names, numbers, strict=True))
    return item(f"ENTITY#{entity_id}", f"#LIMIT#{resource}#{name}", **values)


def old_entity(entity_id: str, **attributes: Any) -> Item:
    return item(f"ENTITY#{entity_id}", "#META", version=1, **attributes)


def old_bucket(entity_id: str, resource: str, name: str) -> Item:
    values = {"tokens": 50_000, "capacity": 100_000, "last_update": 1_705_312_800}
    return item(f"ENTITY#{entity_id}", f"#BUCKET#{resource}#{name}", **values)


# --- tables


@contextmanager
def table_of(name: str, items: Iterable[Item], endpoint: str | None = None) -> Iterator[str]:
    """Create a table with these items; it has no index and no TTL, and is deleted in the end."""
    place = endpoint or shared_endpoint()
    with closing(DynamoClient(name, endpoint_url=place, request_timeout=10)) as client:
        client.call(
            "CreateTable",
            {
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [
                    {"AttributeName": key, "AttributeType": "S"} for key in ("PK", "SK")
                ],
                "KeySchema": [
                    {"AttributeName": "PK", "KeyType": "HASH"},
                    {"AttributeName": "SK", "KeyType": "RANGE"},
                ],
            },
        )
        try:
            put(client, items)
            yield name
        finally:
            client.call("DeleteTable", {})


@contextmanager
def filled(name: str, items: list[Item], endpoint: str) -> Iterator[None]:
    """Put items into an existing table for the block."""
    with closing(DynamoClient(name, endpoint_url=endpoint, request_timeout=10)) as client:
        put(client, items)
        try:
            yield
        finally:
            for each in items:
                client.call("DeleteItem", {"Key": {key: each[key] for key in ("PK", "SK")}})


def put(client: DynamoClient, items: Iterable[Item]) -> None:
    waiting = list(items)
    for start in range(0, len(waiting), AT_ONCE):
        puts = [{"PutRequest": {"Item": each}} for each in waiting[start : start + AT_ONCE]]
        body = {"RequestItems": {client.table: puts}}
        assert not client.call("BatchWriteItem", body).get("UnprocessedItems")


def content(name: str, endpoint: str | None = None) -> dict[str, Any]:
    """Return everything that a stranger could change: items, indexes, stream, TTL."""
    place = endpoint or shared_endpoint()
    with closing(DynamoClient(name, endpoint_url=place, request_timeout=10)) as client:
        items: list[Item] = []
        start: dict[str, Any] = {}
        while True:
            answer = client.call("Scan", {"ConsistentRead": True, **start})
            items += answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        described = client.call("DescribeTable", {})["Table"]
        return {
            "items": sorted(items, key=lambda each: (each["PK"]["S"], each["SK"]["S"])),
            "indexes": described.get("GlobalSecondaryIndexes"),
            "stream": described.get("StreamSpecification"),
            "ttl": client.call("DescribeTimeToLive", {})["TimeToLiveDescription"],
        }
