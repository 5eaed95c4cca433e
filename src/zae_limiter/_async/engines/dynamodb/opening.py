"""From a stack's name to an engine on its table."""

from __future__ import annotations

from typing import Any, NoReturn

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.engine import VERSION_RECORD, DynamoEngine
from zae_limiter._async.engines.dynamodb.provisioning import make_table
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb.table import table_name
from zae_limiter.dynamodb.version import check_record, new_record
from zae_limiter.exceptions import (
    InfrastructureError,
    InfrastructureNotFoundError,
    PermissionDenied,
    ValidationError,
)
from zae_limiter.naming import RESERVED_NAMESPACE
from zae_limiter.transport.errors import Denied, Refused

WITHOUT_AWS = "pass url='sqlite:///limits.db' or 'memory://' to work without DynamoDB"


async def open_dynamodb(
    stack: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    provision: str,
    request_timeout: float,
    clock: Clock,
    parallel_mode: str,
    audit_retention_days: int,
    rejection_cache_ttl: float,
    max_shards: int,
    transport: str,
) -> DynamoEngine:
    """An engine on the stack's table, which is made if ``provision`` is "table".

    A ``ServerClock`` is set by what the server says; any other clock is left alone.
    """
    client = DynamoClient(
        table_name(stack),
        region=region,
        endpoint_url=endpoint_url,
        request_timeout=request_timeout,
        server_clock=clock if isinstance(clock, ServerClock) else None,
        transport=transport,
    )
    try:
        engine = DynamoEngine(
            client,
            Parallel(parallel_mode),
            audit_retention_days=audit_retention_days,
            rejection_cache_ttl=rejection_cache_ttl,
            max_shards=max_shards,
        )
        await _prepare(client, engine, provision)
    except BaseException:
        await client.close()
        raise
    return engine


async def _prepare(client: DynamoClient, engine: DynamoEngine, provision: str) -> None:
    """See that the table is there, whole, and of a schema that we know."""
    record = await _version_record(client.table, engine, may_be_missing=provision == "table")
    if record is not None:
        check_record(record, client.table)
        return
    if provision == "table":
        await make_table(client)
    if provision != "never":
        await engine.records.put(RESERVED_NAMESPACE, VERSION_RECORD, new_record())


async def _version_record(
    table: str, engine: DynamoEngine, *, may_be_missing: bool
) -> dict[str, Any] | None:
    try:
        return await engine.records.get(RESERVED_NAMESPACE, VERSION_RECORD)
    except InfrastructureNotFoundError:
        if may_be_missing:
            return None
        raise InfrastructureNotFoundError(
            table, f"there is no such table, and provision='table' makes it; {WITHOUT_AWS}"
        ) from None
    except (PermissionDenied, Refused, ValidationError) as error:
        _explain(table, error)


def _explain(table: str, error: PermissionDenied | Refused | ValidationError) -> NoReturn:
    """Whoever has not set up AWS may not need it."""
    if isinstance(error, ValidationError) and error.field == "region" and error.value is None:
        raise InfrastructureNotFoundError(
            table,
            "AWS is not set up here: no region is known; set AWS_REGION and credentials, "
            f"a profile or a role, or region=; {WITHOUT_AWS}",
        ) from None
    if isinstance(error, PermissionDenied) and not isinstance(error, Denied):
        raise PermissionDenied(f"{error}; {WITHOUT_AWS}", cause=error.cause) from error
    if isinstance(error, Refused) and error.code == "ValidationException":
        raise InfrastructureError(
            f"table {table!r} is not one of zae-limiter's; choose another stack ({error})"
        ) from error
    raise error
