"""The write of an acquire as a careful engineer puts it together for boto3 or aiobotocore.

The same item, condition, update and answer as ours: both balances between their bounds, both
counters, nothing under other limits than those known. Without retries, since a charge must not be
made twice.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from benchmarks.contestants._table import (
    AMOUNTS,
    PARENT,
    RESOURCE,
    open_sync_repository,
    sync_acquire_of,
)
from benchmarks.dynamodb_server import Place, boto_client, fresh_table
from zae_limiter import Limit, schema

EPOCH_MS = 1_577_836_800_000  # 2020-01-01
PUT_TOGETHER = 25  # items of one BatchWriteItem, at most
MODEL = "model"


class Bound(NamedTuple):
    """A limit in milliunits, and how much an acquire takes of it."""

    capacity: int
    refill: int
    period_ms: int
    amount: int


class ByHand:
    """Requests for buckets of one table."""

    def __init__(
        self, place: Place, namespace_id: str, limits: list[Limit], item: dict[str, Any]
    ) -> None:
        self.place = place
        self._namespace_id = namespace_id
        self._same = {":n": item["n"], ":lh": item["lh"]}
        self._bounds = {
            limit.name: Bound(
                limit.capacity_milli,
                limit.refill_amount_milli,
                limit.refill_period_ms,
                AMOUNTS[limit.name] * 1000,
            )
            for limit in limits
        }

    def update(self, entity_id: str) -> dict[str, Any]:
        """The arguments of ``update_item`` for one acquire."""
        values: dict[str, Any] = {
            **self._same,
            ":op": {"S": secrets.token_urlsafe(6)},
            ":one": {"N": "1"},
        }
        since_ms = time.time_ns() // 1_000_000 - EPOCH_MS
        for name, bound in self._bounds.items():
            accrued = since_ms * bound.refill // bound.period_ms
            values[f":{name}_take"] = {"N": str(-bound.amount)}
            values[f":{name}_used"] = {"N": str(bound.amount)}
            values[f":{name}_low"] = {"N": str(bound.amount - accrued)}
            values[f":{name}_high"] = {"N": str(bound.capacity - accrued)}
        return {
            "TableName": self.place.table,
            "Key": _key(self._namespace_id, entity_id),
            "UpdateExpression": (
                "SET op = :op ADD t_rpm :rpm_take, c_rpm :rpm_used, "
                "t_tpm :tpm_take, c_tpm :tpm_used, wc :one, ac :one"
            ),
            "ConditionExpression": (
                "t_rpm >= :rpm_low AND t_rpm <= :rpm_high AND "
                "t_tpm >= :tpm_low AND t_tpm <= :tpm_high AND n = :n AND lh = :lh"
            ),
            "ExpressionAttributeValues": values,
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


@contextmanager
def prepared(limits: list[Limit], keys: tuple[str, ...]) -> Iterator[ByHand]:
    """A table like ours with a bucket for each key, as one acquire of ours makes it."""
    with fresh_table() as place:
        with open_sync_repository(place, limits) as repository:
            sync_acquire_of(repository)(MODEL)
            namespace_id = repository.namespace_id
        client = boto_client(place.endpoint)
        item = client.get_item(TableName=place.table, Key=_key(namespace_id, MODEL))["Item"]
        _copy(client, place.table, item, (*keys, PARENT))
        client.close()
        yield ByHand(place, namespace_id, limits, item)


def is_refusal(error: ClientError) -> bool:
    """Whether the condition did not hold."""
    return bool(error.response["Error"]["Code"] == "ConditionalCheckFailedException")


def _copy(client: Any, table: str, item: dict[str, Any], keys: tuple[str, ...]) -> None:
    text = json.dumps(item)
    copies = [{"PutRequest": {"Item": json.loads(text.replace(MODEL, key))}} for key in keys]
    for start in range(0, len(copies), PUT_TOGETHER):
        batch = {table: copies[start : start + PUT_TOGETHER]}
        client.batch_write_item(RequestItems=batch)


def _key(namespace_id: str, entity_id: str) -> dict[str, Any]:
    partition = schema.pk_bucket(namespace_id, entity_id, RESOURCE, 0)
    return {"PK": {"S": partition}, "SK": {"S": schema.sk_state()}}
