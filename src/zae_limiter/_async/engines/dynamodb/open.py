"""Open an engine on a stack's table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from zae_limiter._async import operations
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.engine import DynamoEngine
from zae_limiter._async.engines.dynamodb.provisioning import make_table
from zae_limiter._async.engines.dynamodb.table_version import (
    read_version_record,
    write_first_record,
)
from zae_limiter._version import __version__
from zae_limiter.clock import ServerClock
from zae_limiter.dynamodb.table import (
    FUNCTIONS_VERSION,
    WINDOWS_OFFERED,
    new_version_record,
    table_name,
    unfinished_migration,
)
from zae_limiter.exceptions import (
    InfrastructureNotFoundError,
    PermissionDenied,
    ValidationError,
)
from zae_limiter.items.version_record import audit_days_of, check_version_record, usage_days_of
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.settings import WINDOWS, Settings, check_windows
from zae_limiter.store_url import StoreUrl, check_region
from zae_limiter.transport.errors import Denied

if TYPE_CHECKING:
    from zae_limiter._async.engines.dynamodb.migrating import OnProgress
    from zae_limiter.models.backend import MigrationReport

logger = quiet_logger(__name__)

WITHOUT_AWS = "pass url='sqlite:///limits.db' or 'memory://' to work without DynamoDB"


async def open_dynamodb(url: StoreUrl, settings: Settings) -> DynamoEngine:
    """Open an engine on the table of the URL's stack. Options of the URL win over settings.

    A missing table is created as ``provision`` says. A ``ServerClock`` is set by the dates
    that the server sends; any other clock is left alone.
    """
    client = _client(url, settings)
    try:
        engine = DynamoEngine(client, settings)
        await _prepare(client, engine, settings)
    except BaseException:
        await client.close()
        raise
    return engine


async def migrate_dynamodb(
    url: StoreUrl, settings: Settings, *, dry_run: bool, on_progress: OnProgress | None
) -> MigrationReport:
    """Bring the table of the URL's stack to the current schema, or count the changes."""
    from zae_limiter._async.engines.dynamodb.migrating import Migrator

    client, parallel = _client(url, settings), Parallel(settings.parallel_mode)
    try:
        await client.find_credentials()
        return await Migrator(client, parallel).run(dry_run=dry_run, on_progress=on_progress)
    finally:
        await client.close()
        parallel.close()


def _client(url: StoreUrl, settings: Settings) -> DynamoClient:
    clock, options = settings.clock, url.options
    return DynamoClient(
        table_name(url.place),
        region=check_region(options.get("region") or settings.region),
        endpoint_url=options.get("endpoint_url") or settings.endpoint_url,
        request_timeout=settings.request_timeout,
        server_clock=clock if isinstance(clock, ServerClock) else None,
    )


async def _prepare(client: DynamoClient, engine: DynamoEngine, settings: Settings) -> None:
    """Check that the table exists, is ours, and has a schema that this version understands.

    The retention of usage and audit events is decided when the table is made. Every client reads
    it from the version record.
    """
    provision = settings.provision
    exists, record = await _version_record(engine)
    if not exists:
        await _provide(client, settings)
        _, record = await _version_record(engine)
    if record is None:
        if provision == "table":  # another client may be creating the table just now
            await make_table(client)
        record = _first_record(settings)
        if provision != "never":
            record = await write_first_record(client, record)
    check_version_record(record, client.table)
    unfinished = unfinished_migration(record, client.table)
    if unfinished is not None:
        logger.warning(unfinished)
    engine.keep_usage(usage_days_of(record))
    audit_days = audit_days_of(record)
    if audit_days is not None:
        engine.keep_audit(audit_days)
    if WINDOWS_OFFERED in record and settings.snapshot_windows == WINDOWS:  # the default
        engine.snapshot_windows = check_windows(record[WINDOWS_OFFERED])
    if settings.auto_update and record.get(FUNCTIONS_VERSION, __version__) != __version__:
        await operations.update_older_functions(client, record)


async def _provide(client: DynamoClient, settings: Settings) -> None:
    """Create the missing table alone, or the stack that it belongs to."""
    if settings.provision == "never":
        raise InfrastructureNotFoundError(
            client.table, f"there is no such table, and provision='table' creates it; {WITHOUT_AWS}"
        )
    if settings.provision == "table":
        await make_table(client)
        return
    await operations.deploy_missing(client, settings)


def _first_record(settings: Settings) -> dict[str, Any]:
    days = settings.usage_retention_days
    return new_version_record() if days is None else new_version_record(days)


async def _version_record(engine: DynamoEngine) -> tuple[bool, dict[str, Any] | None]:
    """Return whether the table exists, and its version record."""
    try:
        await engine.client.find_credentials()
        return True, await read_version_record(engine.client)
    except InfrastructureNotFoundError:
        return False, None
    except (PermissionDenied, ValidationError) as error:
        _explain(engine.client.table, error)


def _explain(table: str, error: PermissionDenied | ValidationError) -> NoReturn:
    """Raise the error with advice: a user without AWS may not need AWS at all."""
    if isinstance(error, ValidationError) and error.field == "region" and error.value is None:
        raise InfrastructureNotFoundError(
            table,
            "AWS is not set up here: no region is known; set AWS_REGION and credentials, "
            f"a profile or a role, or region=; {WITHOUT_AWS}",
        ) from None
    if isinstance(error, PermissionDenied) and not isinstance(error, Denied):
        raise PermissionDenied(f"{error}; {WITHOUT_AWS}", cause=error.cause) from error
    raise error
