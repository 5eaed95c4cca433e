"""The one door from the library to ``zae_limiter_ops``.

Each function imports the operation that it names when it is called, so applications that never
deploy or apply anything import no operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter._async.engines.dynamodb.client import DynamoClient
    from zae_limiter._async.repository.context import Context
    from zae_limiter.models.stack import LimiterInfo, Status
    from zae_limiter.settings import Settings
    from zae_limiter_ops._async.infra.deployment import Deployment
    from zae_limiter_ops._async.provisioner import Provisioner


async def deploy_missing(client: DynamoClient, settings: Settings) -> None:
    """Deploy the stack of a missing table, or only the table if the endpoint has no stacks."""
    from zae_limiter_ops._async.infra import opening

    await opening.deploy_missing(client, settings)


async def update_older_functions(client: DynamoClient, record: Mapping[str, Any]) -> None:
    """Update functions of an older version to this version."""
    from zae_limiter_ops._async.infra import opening

    await opening.update_older_functions(client, record)


async def list_deployed(region: str | None, endpoint_url: str | None) -> list[LimiterInfo]:
    """Return every limiter that is deployed in a region, sorted by name."""
    from zae_limiter_ops._async.infra import discovery

    return await discovery.list_deployed(region, endpoint_url)


def deployment(name: str, region: str | None, endpoint_url: str | None) -> Deployment:
    """Return the object that creates, changes and deletes the stack of that name."""
    from zae_limiter_ops._async.infra.deployment import Deployment

    return Deployment(name, region, endpoint_url)


async def read_status(name: str, region: str | None, endpoint_url: str | None) -> Status:
    """Return the state of a stack, its table and its functions."""
    from zae_limiter_ops._async.infra import status

    return await status.read_status(name, region, endpoint_url)


def provisioner(context: Context, principal: str | None) -> Provisioner:
    """Return the object that brings a namespace to a manifest."""
    from zae_limiter_ops._async.provisioner import Provisioner

    return Provisioner(context, principal)
