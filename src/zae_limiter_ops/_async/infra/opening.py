"""Steps of opening a repository: deploy a missing stack, and update older functions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._version import __version__
from zae_limiter.dynamodb.table import FUNCTIONS_VERSION, has_older_functions
from zae_limiter.exceptions import InfrastructureError, PermissionDenied
from zae_limiter.models.stack import StackOptions
from zae_limiter.settings import Settings
from zae_limiter.shell_words import command_line
from zae_limiter_ops._async.infra.deployment import Deployment
from zae_limiter_ops.infra.progress import StackEvent

# Below the logger of the library, which users configure.
logger = logging.getLogger("zae_limiter.infra")


async def deploy_missing(client: DynamoClient, settings: Settings) -> None:
    """Deploy the stack of a missing table; without CloudFormation, create the table alone."""
    deployment = _deployment(client)
    logger.info("table %s does not exist: deploying its stack", client.table)
    try:
        await deployment.deploy(settings.stack_options or _options(settings))
    except PermissionDenied as error:
        raise PermissionDenied(
            f"there is no table {client.table!r}, and its stack cannot be deployed: {error}; check "
            "the region and the stack name, or deploy the stack as a user with more permissions: "
            f"{command_line('deploy', options=('--name', client.table))}",
            cause=error,
        ) from error
    finally:
        await deployment.close()


async def update_older_functions(client: DynamoClient, record: Mapping[str, Any]) -> None:
    """Update the functions of a stack to this version, if they are older.

    A failure is only logged: acquires work without the functions.
    """
    if not has_older_functions(record):
        return
    deployment = _deployment(client)
    try:
        updated = await deployment.update_functions()
    except InfrastructureError as error:
        logger.warning(
            "the functions of stack %s have version %s, which is older than %s, and could not be "
            "updated (%s); update them: %s",
            client.table,
            record.get(FUNCTIONS_VERSION),
            __version__,
            error,
            command_line("upgrade", options=("--name", client.table)),
        )
    else:
        logger.info("updated functions to version %s: %s", __version__, ", ".join(updated))
    finally:
        await deployment.close()


def _deployment(client: DynamoClient) -> Deployment:
    return Deployment(client.table, client.region, client.endpoint_url, on_event=_log)


def _log(event: StackEvent) -> None:
    logger.info("%s %s %s", event.logical_id, event.status, event.reason)


def _options(settings: Settings) -> StackOptions:
    """Return the stack options that follow from the settings of a repository."""
    days = settings.usage_retention_days
    return StackOptions(
        usage_retention_days=90 if days is None else days,
        audit_retention_days=settings.audit_retention_days,
        snapshot_windows=",".join(settings.snapshot_windows),
    )
