"""The entry point of the Lambda function that reads the table's stream.

Environment: ``TABLE_NAME``; ``ARCHIVE_BUCKET_NAME`` if expired audit events are archived;
``URL_SUFFIX``, the domain of AWS's services in this partition.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter_aggregator.processor import RESERVE_S, Processor
from zae_limiter_aggregator.report import Log
from zae_limiter_ops.transport.partitions import URL_SUFFIX, dynamodb_endpoint
from zae_limiter_ops.transport.s3 import ObjectStore

TABLE, ARCHIVE = "TABLE_NAME", "ARCHIVE_BUCKET_NAME"
CALL_S = 5.0  # for one call with its retries: a batch has a minute by default
DEFAULT_TIME_S = 60.0  # the remaining time if the context does not say it
_SETTINGS = (
    TABLE,
    ARCHIVE,
    "AWS_ACCESS_KEY_ID",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_DYNAMODB",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_SESSION_TOKEN",
    URL_SUFFIX,
)


class AwsCalls:
    """Calls DynamoDB and S3 for the aggregator. Threads may share an instance."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._dynamodb = DynamoClient(
            table, endpoint_url=dynamodb_endpoint(), request_timeout=CALL_S
        )
        self._objects = ObjectStore()

    def call(self, operation: str, body: Mapping[str, Any] | str) -> dict[str, Any]:
        """Call an operation of DynamoDB. A lost answer is repeated: every write is idempotent."""
        return self._dynamodb.call(operation, body, repeatable=True)

    def put_object(self, bucket: str, name: str, body: bytes) -> None:
        self._objects.put(bucket, name, body)

    def close(self) -> None:
        """Close all connections."""
        self._dynamodb.close()
        self._objects.close()


# The processor of the current environment, by the values of `_SETTINGS`: at most one entry.
_warm: dict[tuple[str, ...], tuple[AwsCalls, Processor]] = {}


def handler(event: Mapping[str, Any], context: Any = None) -> dict[str, list[dict[str, str]]]:
    """Process a batch of stream records; return the records that Lambda must deliver again."""
    log = Log(str(getattr(context, "aws_request_id", "") or ""))
    remaining_s = _remaining_seconds(context)
    deadline = time.monotonic() + max(remaining_s - RESERVE_S, remaining_s / 2)
    records = event.get("Records") or []
    processor = _processor(os.environ)
    result = processor.process(records, log, deadline)
    values = {
        "Records": result.processed_count,
        "Hours": result.snapshots_updated,
        "Archived": result.events_archived,
        "Failures": len(result.failed),
        "Skipped": result.skipped,
        "Lag": result.lag_ms,
    }
    log.metrics(values, Table=os.environ[TABLE])
    return result.response()


def close() -> None:
    """End all threads and connections; the next batch starts new ones."""
    while _warm:
        _, (calls, processor) = _warm.popitem()
        processor.close()
        calls.close()


def _processor(environment: Mapping[str, str]) -> Processor:
    """Return the processor for this environment. A warm function reuses its connections."""
    settings = tuple(environment.get(name, "") for name in _SETTINGS)
    if settings not in _warm:
        close()
        calls = AwsCalls(environment[TABLE])
        _warm[settings] = calls, Processor(calls, environment.get(ARCHIVE) or None)
    return _warm[settings][1]


def _remaining_seconds(context: Any) -> float:
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return DEFAULT_TIME_S if remaining is None else remaining() / 1000
