"""Methods of the repository for its stack and table, and the state of an unopened repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zae_limiter._async import operations
from zae_limiter._async.repository.context import RepositoryMixin
from zae_limiter.exceptions import InfrastructureError

if TYPE_CHECKING:
    from zae_limiter.models.stack import StackOptions, Status
    from zae_limiter.settings import Settings
    from zae_limiter_ops._async.infra.deployment import Deleted, Deployed, Deployment


class StackPlace(NamedTuple):
    """The place of a stack."""

    name: str
    region: str | None
    endpoint_url: str | None


class Unopened(NamedTuple):
    """A repository that was constructed but not opened."""

    settings: Settings
    place: StackPlace


class InfrastructureMethods(RepositoryMixin):
    """Create and delete the stack or table of a repository, and report on it."""

    _unopened: Unopened | None = None

    async def create_stack(
        self, stack_options: StackOptions | None = None, *, wait: bool = True
    ) -> Deployed:
        """Deploy the stack with these options, or update an existing stack to them."""
        from zae_limiter.models.stack import StackOptions

        if stack_options is None and self._unopened is not None:
            stack_options = self._unopened.settings.stack_options
        deployment = self._deployment()
        try:
            return await deployment.deploy(stack_options or StackOptions(), wait=wait)
        finally:
            await deployment.close()

    async def delete_stack(self, *, wait: bool = True) -> Deleted:
        """Delete the stack and all data of all namespaces in its table.

        This cannot be undone. An S3 bucket with archived audit events stays; the result names it.
        """
        deployment = self._deployment()
        try:
            return await deployment.delete(wait=wait)
        finally:
            await deployment.close()

    async def get_status(self) -> Status:
        """Return the state of the stack, its table and its functions."""
        return await operations.read_status(*self._place())

    async def create_table(self) -> None:
        """Create only the table unless it exists, on any DynamoDB-compatible endpoint."""
        from zae_limiter._async.engines.dynamodb.client import DynamoClient
        from zae_limiter._async.engines.dynamodb.provisioning import make_table
        from zae_limiter._async.engines.dynamodb.table_version import refuse_foreign_table

        if not self._has_infrastructure():
            return  # a file is created when it is opened
        place = self._place()
        client = DynamoClient(place.name, region=place.region, endpoint_url=place.endpoint_url)
        try:
            await client.find_credentials()
            await refuse_foreign_table(client)
            await make_table(client)
        finally:
            await client.close()

    async def delete_table(self) -> None:
        """Delete all data of all namespaces in the store. This cannot be undone."""
        await self._context.engine.delete_all()
        self._context.cache.clear()

    def _has_infrastructure(self) -> bool:
        if self._unopened is not None:
            return True
        return self._context.engine.capabilities.infrastructure

    def _place(self) -> StackPlace:
        if self._unopened is not None:
            return self._unopened.place
        engine = self._context.engine
        if not engine.capabilities.infrastructure:
            raise InfrastructureError(
                f"{engine.capabilities.engine} stores have no stack; stacks are for DynamoDB"
            )
        from zae_limiter._async.engines.dynamodb.engine import DynamoEngine

        if not isinstance(engine, DynamoEngine):
            raise InfrastructureError(f"{type(engine).__name__} does not tell where its stack is")
        client = engine.client
        return StackPlace(client.table, client.region, client.endpoint_url)

    def _deployment(self) -> Deployment:
        return operations.deployment(*self._place())
