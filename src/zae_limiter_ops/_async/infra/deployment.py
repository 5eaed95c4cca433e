"""Deploy a limiter: stack, version record, default namespace, code of the functions.

Each step first checks the existing state. An interrupted deployment can therefore be run again,
and several deployments may run at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.engine import DynamoEngine
from zae_limiter._async.engines.dynamodb.provisioning import make_table, remove_table
from zae_limiter._async.engines.dynamodb.table_version import (
    read_version_record,
    refuse_foreign_table,
)
from zae_limiter._version import __version__
from zae_limiter.clock import ServerClock
from zae_limiter.clock.backoff import Backoff
from zae_limiter.dynamodb import table
from zae_limiter.exceptions import (
    InfrastructureNotFoundError,
    PermissionDenied,
    StackOperationError,
)
from zae_limiter.items import version_record
from zae_limiter.models.stack import StackOptions
from zae_limiter.naming import DEFAULT_NAMESPACE, RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.runtime.calls import asleep
from zae_limiter.settings import Settings
from zae_limiter_ops._async.infra.stack_manager import OnEvent, StackChange, StackManager
from zae_limiter_ops.infra import names, packages, progress
from zae_limiter_ops.transport.control import FIRST_ANSWER_S, AControl, ControlError

REQUEST_TIMEOUT_S = 10.0  # longer than an acquire's: only a deployment waits for these calls
FIRST_PAUSE_S = 0.05  # a local control plane is done at once
LONGEST_PAUSE_S = 2.0
CODE_WITHIN_S = 300.0  # Lambda takes seconds to install new code
_REFUSED_DELETIONS = {"NoSuchBucket": "absent", "BucketNotEmpty": "kept"}

# Below the logger of the library, which users configure.
logger = logging.getLogger("zae_limiter.infra")


class Deployed(NamedTuple):
    """The result of a deployment or upgrade.

    ``stack`` is "created", "updated", "unchanged" or "begun" (if the call does not wait), "table"
    if the endpoint has no CloudFormation, or "" if an upgrade found no stack. ``functions`` are the
    names of the functions that got new code.
    """

    stack: str
    functions: tuple[str, ...] = ()


class Deleted(NamedTuple):
    """The result of a deletion; ``kept_bucket`` still exists because it holds archived events."""

    existed: bool
    kept_bucket: str | None = None


class Deployment:
    """Deploys, upgrades and deletes one limiter."""

    def __init__(
        self,
        name: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        body: dict[str, Any] | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.name = name
        self.manager = StackManager(name, region, endpoint_url, body=body, on_event=on_event)
        self._control = self.manager.control

    async def close(self) -> None:
        await self.manager.close()

    async def options(self) -> StackOptions | None:
        """Return the options of the deployed limiter; None if there is no limiter."""
        if await self.manager.is_served():
            return await self.manager.options()
        record = await self.version_record()
        return None if record is None else _recorded_options(record)

    async def deploy(self, options: StackOptions, *, wait: bool = True) -> Deployed:
        """Deploy the stack and its functions with these options, in this version."""
        if not await self.manager.is_served():
            logger.info(
                "%s has no CloudFormation: creating the table %s without a stack",
                self.manager.endpoint_url or "the configured endpoint",
                self.name,
            )
            return await self.deploy_table(options)
        await self._refuse_other_version()
        stack = await self.manager.deploy(options, wait=wait)
        if not wait:
            return Deployed("begun" if stack != "unchanged" else stack)
        await self._write_records(options)
        return Deployed(stack, await self.update_functions())

    async def plan(self, options: StackOptions) -> list[StackChange]:
        """Return the changes that a deployment would make to the stack, without making them."""
        await self._control.arequire_stacks(
            "a plan shows the changes of a stack", "deploy without a plan creates a table alone"
        )
        await self._refuse_other_version()
        return await self.manager.plan(options)

    async def deploy_table(self, options: StackOptions) -> Deployed:
        """Create the table without a stack, for an endpoint that has no CloudFormation."""
        await self._refuse_other_version()
        await self._write_records(options, create_table=True)
        return Deployed("table")

    async def update_functions(self) -> tuple[str, ...]:
        """Upload the code of this version to every function; return the changed functions."""
        if not await self.manager.is_served():  # a local table that was copied from a stack
            return ()
        outcomes = {
            name: await FunctionCode(self._control, name).upload(package)
            for name, package in functions(self.name).items()
        }
        if any(changed is not None for changed in outcomes.values()):
            await self._record_functions_version()
        return tuple(name for name, changed in outcomes.items() if changed)

    async def upgrade(self) -> Deployed:
        """Update the stack and its functions to this version, and keep the options of the stack.

        Other tools may have deployed the stack; then this writes the version record.
        """
        await self._refuse_other_version()
        stack = await self.manager.upgrade() if await self.manager.is_served() else ""
        if not stack:
            return Deployed(stack)
        if await self.version_record() is None:
            await self._write_records(await self.manager.options() or StackOptions())
        return Deployed(stack, await self.update_functions())

    async def plan_upgrade(self) -> Deployed:
        """Return the result that an upgrade would have, without changing anything."""
        await self._refuse_other_version()
        changes = await self.manager.plan_upgrade() if await self.manager.is_served() else None
        if changes is None:
            return Deployed("")
        stack = "updated" if changes else "unchanged"
        return Deployed(stack, await self._outdated_functions())

    async def state(self) -> str | None:
        """Return the status of the stack.

        progress.TABLE_ONLY stands for a table without a stack. None means that neither exists.
        """
        if await self.manager.is_served():
            return await self.manager.status()
        return None if await self.version_record() is None else progress.TABLE_ONLY

    async def delete(self, *, wait: bool = True) -> Deleted:
        """Delete the stack with its table; without CloudFormation, delete the table.

        An archive that holds events is kept.
        """
        if not await self.manager.is_served():
            return await self._delete_table()
        await self._refuse_deletion_of_foreign_table()
        bucket = (await self.manager.outputs()).get("ArchiveBucket")
        existed = await self.manager.delete(wait=wait)
        if not existed or bucket is None:
            return Deleted(existed)
        kept = not wait or await self._delete_empty(bucket) == "kept"
        return Deleted(existed, bucket if kept else None)

    async def _refuse_deletion_of_foreign_table(self) -> None:
        """Raise ForeignTableError if the stack holds a table of another form."""
        async with self.opened_engine() as engine:
            # A person who may delete the stack need not have the permission to read its items.
            with suppress(PermissionDenied):
                await refuse_foreign_table(engine.client)

    async def _delete_table(self) -> Deleted:
        if await self.version_record() is None:
            return Deleted(existed=False)
        async with self.opened_engine() as engine:
            await remove_table(engine.client)
        return Deleted(existed=True)

    async def finish_deletion(self) -> list[str]:
        """Delete the empty archives that interrupted deletions have left; return their names.

        A stack is deleted before its archive. After that, only the events of the deleted stack
        contain the name of the archive.
        """
        if not await self.manager.is_served():
            return []
        buckets = await self.manager.retained_by_deleted_stacks("AuditArchive")
        return [bucket for bucket in buckets if await self._delete_empty(bucket) == "deleted"]

    async def _delete_empty(self, bucket: str) -> str:
        """Delete a bucket unless it holds objects; return "deleted", "absent" or "kept"."""
        try:
            await self._control.acall("s3", "delete_bucket", Bucket=bucket)
        except ControlError as error:
            if error.code in _REFUSED_DELETIONS:
                return _REFUSED_DELETIONS[error.code]
            raise
        return "deleted"

    async def _outdated_functions(self) -> tuple[str, ...]:
        """Return the functions of the stack whose code differs from this version's code."""
        outdated = []
        for name, package in functions(self.name).items():
            configuration = await FunctionCode(self._control, name).configuration()
            if configuration and configuration.get("CodeSha256") != package.sha256:
                outdated.append(name)
        return tuple(outdated)

    async def functions_without_code(self) -> tuple[str, ...]:
        """Return the functions whose code was never uploaded: a deployment was interrupted."""
        if not await self.manager.is_served():
            return ()
        found = []
        for name in functions(self.name):
            configuration = await FunctionCode(self._control, name).configuration()
            if configuration and packages.is_placeholder(configuration):
                found.append(name)
        return tuple(found)

    # --- records

    async def version_record(self) -> dict[str, Any] | None:
        """Return the version record of the table; None without a table or a record.

        Raises ForeignTableError for a table of another form.
        """
        try:
            return await self.existing_version_record()
        except InfrastructureNotFoundError:
            return None

    async def existing_version_record(self) -> dict[str, Any] | None:
        """Return the version record of the table; None for a new table.

        Raises InfrastructureNotFoundError without a table, and ForeignTableError for a table of
        another form.
        """
        async with self.opened_engine(request_timeout=FIRST_ANSWER_S) as engine:
            return await read_version_record(engine.client)

    async def _refuse_other_version(self) -> None:
        """Raise if a newer version of zae-limiter, or another program, has written the table."""
        is_usable = True
        if await self.manager.is_served():
            status = await self.manager.status()
            if status is None:  # the creation of a stack refuses any existing table
                return
            is_usable = status in progress.USABLE
        record = await self.version_record()
        if record is not None and is_usable:
            version_record.refuse_newer_schema(record, self.name)
            table.refuse_newer_deployment(record)

    async def _write_records(self, options: StackOptions, *, create_table: bool = False) -> None:
        """Write the version record and the default namespace, if they are missing or outdated."""
        clock = ServerClock()
        async with self.opened_engine(clock) as engine:
            if create_table:
                # Without functions nobody reads the stream. A local server would keep all records
                # of the stream, which makes every write slower.
                await make_table(engine.client, stream=False)
            record = await read_version_record(engine.client)
            wanted = table.deployed_record(
                record,
                options.usage_retention_days,
                options.audit_retention_days,
                options.snapshot_windows,
            )
            if wanted != record:
                await engine.documents.put(RESERVED_NAMESPACE, VERSION_RECORD, wanted)
            if await engine.namespaces.find(DEFAULT_NAMESPACE) is None:
                await engine.namespaces.register((DEFAULT_NAMESPACE,), clock())

    async def _record_functions_version(self) -> None:
        async with self.opened_engine() as engine:
            record = await read_version_record(engine.client) or {}
            if record.get(table.FUNCTIONS_VERSION) != __version__:
                record = {**record, table.FUNCTIONS_VERSION: __version__}
                await engine.documents.put(RESERVED_NAMESPACE, VERSION_RECORD, record)

    @asynccontextmanager
    async def opened_engine(
        self, clock: ServerClock | None = None, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> AsyncIterator[DynamoEngine]:
        """Open an engine on the table for the block."""
        client = DynamoClient(
            table.table_name(self.name),
            region=self.manager.region,
            endpoint_url=self.manager.endpoint_url,
            request_timeout=request_timeout,
            server_clock=clock,
        )
        engine = DynamoEngine(client, Settings())
        try:
            await client.find_credentials()
            yield engine
        finally:
            await engine.close()


def _recorded_options(record: Mapping[str, Any]) -> StackOptions:
    """Return the options of a table without a stack, from its version record."""
    defaults = StackOptions()
    return StackOptions(
        usage_retention_days=version_record.usage_days_of(record),
        audit_retention_days=version_record.audit_days_of(record) or defaults.audit_retention_days,
        snapshot_windows=record.get(table.WINDOWS_OFFERED, defaults.snapshot_windows),
    )


def functions(stack: str) -> dict[str, packages.FunctionPackage]:
    """Return the package of each function that a stack may have, by the name of the function."""
    return {
        names.aggregator_function(stack): packages.aggregator_package(),
        names.provisioner_function(stack): packages.provisioner_package(),
    }


class FunctionCode:
    """The code of one deployed function."""

    def __init__(self, control: AControl, name: str) -> None:
        self._control = control
        self.name = name

    async def upload(self, package: packages.FunctionPackage) -> bool | None:
        """Upload the package, and wait until the function runs it.

        Returns whether the code has changed: False if the function already had this package, None
        if there is no such function.
        """
        give_up_at = time.monotonic() + CODE_WITHIN_S
        backoff, sent = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), False
        while (configuration := await self.configuration()) is not None:
            status = configuration.get("LastUpdateStatus", "Successful")
            if status == "Failed" and sent:
                reason = configuration.get("LastUpdateStatusReason") or "no reason was given"
                raise StackOperationError(
                    self.name, f"the code of the function could not be updated: {reason}"
                )
            if status != "InProgress" and configuration.get("State") != "Pending":
                if configuration.get("CodeSha256") == package.sha256:
                    return sent
                sent = await self._send(package) or sent
            if time.monotonic() > give_up_at:
                raise StackOperationError(
                    self.name,
                    f"Lambda has not installed the code after {CODE_WITHIN_S:.0f} s; run this "
                    "again later",
                )
            await asleep(backoff.next_s())
        return None

    async def configuration(self) -> dict[str, Any] | None:
        """Return Lambda's configuration of the function; None if there is no such function."""
        try:
            return await self._control.acall(
                "lambda", "get_function_configuration", FunctionName=self.name
            )
        except ControlError as error:
            if error.code == "ResourceNotFoundException":
                return None
            raise

    async def _send(self, package: packages.FunctionPackage) -> bool:
        """Send the package; return False if Lambda refuses because of an update in progress."""
        try:
            await self._control.acall(
                "lambda", "update_function_code", FunctionName=self.name, ZipFile=package.content
            )
        except ControlError as error:
            if error.code == "ResourceConflictException":
                return False
            raise
        return True
