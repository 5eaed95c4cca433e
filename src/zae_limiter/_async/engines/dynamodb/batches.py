"""Deleting many items without a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zae_limiter._async.engines.dynamodb.backoff import Backoff
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.concurrency.parallel import Parallel, agather
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.records.dynamodb.keys import Key

MOST_WRITES = 25  # of one BatchWriteItem
AT_ONCE = 4


async def batch_delete(client: DynamoClient, keys: Sequence[Key], parallel: Parallel) -> None:
    """Remove the items; those that do not exist are no error. Several batches at once."""
    wanted = list(dict.fromkeys(keys))
    batches = [wanted[at : at + MOST_WRITES] for at in range(0, len(wanted), MOST_WRITES)]
    for start in range(0, len(batches), AT_ONCE):
        await agather(
            parallel,
            *(lambda batch=batch: _delete(client, batch) for batch in batches[start:][:AT_ONCE]),
        )


async def _delete(client: DynamoClient, keys: Sequence[Key]) -> None:
    deadline = client.deadline()
    backoff = Backoff(deadline)
    requests: list[dict[str, Any]] = [{"DeleteRequest": {"Key": key.item}} for key in keys]
    while True:
        body = {"RequestItems": {client.table: requests}}
        answer = await client.call("BatchWriteItem", body, deadline=deadline, repeatable=True)
        requests = answer.get("UnprocessedItems", {}).get(client.table, [])
        if not requests:
            return
        if not await backoff.pause():
            raise RateLimiterUnavailable(
                f"DynamoDB left {len(requests)} of {len(keys)} items undeleted; "
                "the table's throughput is used up"
            )
