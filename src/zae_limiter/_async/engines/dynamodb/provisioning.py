"""Making and removing the table, on any endpoint that speaks DynamoDB."""

from __future__ import annotations

import logging

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.dynamodb import table
from zae_limiter.exceptions import (
    InfrastructureNotFoundError,
    PermissionDenied,
    RateLimiterUnavailable,
)
from zae_limiter.transport.aio import asleep  # unasync: remove
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import Refused

# sync: from zae_limiter.transport.threads import sleep

CALL_S = 10.0  # requests about tables take longer than those about items
READY_WITHIN_S = 300.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 2.0

logger = logging.getLogger("zae_limiter")


async def make_table(client: DynamoClient, *, stream: bool = True) -> None:
    """Return when the table can be used; others may be making it at the same time.

    Its stream is for the aggregator; a table for tests may do without.
    """
    waiting, pause_s = Deadline(READY_WITHIN_S), FIRST_PAUSE_S
    while (status := await _status(client)) not in table.READY:
        if status is None:
            await _create(client, stream)
        if waiting.left() <= 0:
            raise RateLimiterUnavailable(
                f"table {client.table!r} is still {status} after {READY_WITHIN_S:g} s; open it "
                "again later",
                stack_name=client.table,
            )
        logger.info("table %s is not ready yet (%s)", client.table, status or "new")
        await asleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    await _enable_ttl(client)


async def remove_table(client: DynamoClient) -> None:
    """Return when it is gone, or never was."""
    waiting, pause_s, asked = Deadline(READY_WITHIN_S), FIRST_PAUSE_S, False
    while (status := await _status(client)) is not None and waiting.left() > 0:
        if not asked and status in table.READY:
            asked = await _delete(client)
        await asleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _status(client: DynamoClient) -> str | None:
    """None if there is no such table."""
    try:
        answer = await client.call("DescribeTable", {}, deadline=Deadline(CALL_S))
    except InfrastructureNotFoundError:
        return None
    return str(answer["Table"]["TableStatus"])


async def _create(client: DynamoClient, stream: bool) -> None:
    logger.info("creating table %s", client.table)
    request = table.create_request(client.table, stream=stream)
    try:
        await client.call("CreateTable", request, deadline=Deadline(CALL_S), repeatable=True)
    except Refused as error:
        if error.code != "ResourceInUseException":  # else somebody was faster
            raise


async def _delete(client: DynamoClient) -> bool:
    """False if it has to be asked for again."""
    try:
        await client.call("DeleteTable", {}, deadline=Deadline(CALL_S), repeatable=True)
    except InfrastructureNotFoundError:
        pass
    except Refused as error:
        if error.code != "ResourceInUseException":
            raise
        return False
    return True


async def _enable_ttl(client: DynamoClient) -> None:
    """Without it the table only grows: a bucket that has run out counts as full all the same."""
    request = table.ttl_request(client.table)
    try:
        await client.call("UpdateTimeToLive", request, deadline=Deadline(CALL_S), repeatable=True)
    except (Refused, PermissionDenied) as error:
        if "already enabled" not in str(error):
            logger.warning("table %s forgets nothing by itself: %s", client.table, error)
