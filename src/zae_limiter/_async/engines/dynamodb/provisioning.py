"""Create and delete the table, on any endpoint that speaks DynamoDB."""

from __future__ import annotations

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.clock import Deadline
from zae_limiter.clock.backoff import Backoff
from zae_limiter.dynamodb import table
from zae_limiter.exceptions import (
    InfrastructureNotFoundError,
    PermissionDenied,
    RateLimiterUnavailable,
)
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.calls import asleep
from zae_limiter.transport.errors import Refused

CALL_S = 10.0  # requests about tables take longer than those about items
READY_WITHIN_S = 300.0  # AWS creates a table with indexes in well under a minute
FIRST_PAUSE_S = 0.02  # a local server is ready at once
LONGEST_PAUSE_S = 2.0

logger = quiet_logger(__name__)


async def make_table(client: DynamoClient, *, stream: bool = True) -> None:
    """Create the table unless it exists, and return when it can be used.

    Several clients may do so at once. Only the aggregator needs the stream.
    """
    waiting, backoff = Deadline(READY_WITHIN_S), Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while (status := await _status(client)) not in table.READY:
        if status is None:
            await _create(client, stream)
        if waiting.left() <= 0:
            raise RateLimiterUnavailable(
                f"table {client.table!r} is still {status} after {READY_WITHIN_S:g} s; open it "
                "again later",
                stack_name=client.table,
            )
        logger.info("waiting until table %s is ready (%s)", client.table, status or "new")
        await asleep(backoff.next_s())
    await _enable_ttl(client)


async def remove_table(client: DynamoClient) -> None:
    """Delete the table if it exists, and return when it does not exist any more."""
    waiting, backoff = Deadline(READY_WITHIN_S), Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    is_deleting = False
    while (status := await _status(client)) is not None and waiting.left() > 0:
        if not is_deleting and status in table.READY:
            is_deleting = await _delete(client)
        await asleep(backoff.next_s())


async def _status(client: DynamoClient) -> str | None:
    """Return the status of the table; None if there is no such table."""
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
        if error.code != "ResourceInUseException":  # another client is creating it
            raise


async def _delete(client: DynamoClient) -> bool:
    """Ask for the deletion; False if the table is busy, and the caller must ask again."""
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
    """Enable the TTL. Without it expired buckets stay stored, though they count as full."""
    request = table.ttl_request(client.table)
    try:
        await client.call("UpdateTimeToLive", request, deadline=Deadline(CALL_S), repeatable=True)
    except (Refused, PermissionDenied) as error:
        if "already enabled" not in str(error):
            logger.warning(
                "TTL could not be enabled on table %s; expired buckets stay until it is: %s",
                client.table,
                error,
            )
