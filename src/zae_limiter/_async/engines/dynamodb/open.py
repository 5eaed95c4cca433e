"""Open an engine on a stack's table."""

from __future__ import annotations

from typing import Any, NoReturn

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.engine import DynamoEngine
from zae_limiter._async.engines.dynamodb.provisioning import make_table
from zae_limiter.clock import ServerClock
from zae_limiter.dynamodb.table import check_version_record, new_version_record, table_name
from zae_limiter.exceptions import (
    InfrastructureError,
    InfrastructureNotFoundError,
    PermissionDenied,
    ValidationError,
)
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.settings import Settings
from zae_limiter.store_url import StoreUrl, check_region
from zae_limiter.transport.errors import Denied, Refused

WITHOUT_AWS = "pass url='sqlite:///limits.db' or 'memory://' to work without DynamoDB"


async def open_dynamodb(url: StoreUrl, settings: Settings) -> DynamoEngine:
    """Open an engine on the table of the URL's stack. Options of the URL win over settings.

    A missing table is created if ``provision`` is "table". A ``ServerClock`` is set by the dates
    that the server sends; any other clock is left alone.
    """
    clock, options = settings.clock, url.options
    client = DynamoClient(
        table_name(url.place),
        region=check_region(options.get("region") or settings.region),
        endpoint_url=options.get("endpoint_url") or settings.endpoint_url,
        request_timeout=settings.request_timeout,
        server_clock=clock if isinstance(clock, ServerClock) else None,
    )
    try:
        engine = DynamoEngine(client, settings)
        await _prepare(client, engine, settings.provision)
    except BaseException:
        await client.close()
        raise
    return engine


async def _prepare(client: DynamoClient, engine: DynamoEngine, provision: str) -> None:
    """Check that the table exists, is ours, and has a schema that this version understands."""
    record = await _version_record(client.table, engine, may_be_missing=provision == "table")
    if record is not None:
        check_version_record(record, client.table)
        return
    if provision == "table":
        await make_table(client)
    if provision != "never":
        await engine.documents.put(RESERVED_NAMESPACE, VERSION_RECORD, new_version_record())


async def _version_record(
    table: str, engine: DynamoEngine, *, may_be_missing: bool
) -> dict[str, Any] | None:
    try:
        return await engine.documents.get(RESERVED_NAMESPACE, VERSION_RECORD)
    except InfrastructureNotFoundError:
        if may_be_missing:
            return None
        raise InfrastructureNotFoundError(
            table, f"there is no such table, and provision='table' creates it; {WITHOUT_AWS}"
        ) from None
    except (PermissionDenied, Refused, ValidationError) as error:
        _explain(table, error)


def _explain(table: str, error: PermissionDenied | Refused | ValidationError) -> NoReturn:
    """Raise the error with what to do about it: a user without AWS may not need it."""
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
