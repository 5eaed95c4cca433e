"""The table of the function, with the ports that a manifest needs and no others.

An engine would import buckets and shards, which takes as long as all the rest of a cold start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.configs import DynamoConfigs
from zae_limiter._sync.engines.dynamodb.context import TableContext
from zae_limiter._sync.engines.dynamodb.entities import DynamoEntities
from zae_limiter._sync.engines.dynamodb.namespaces import DynamoDocuments, DynamoNamespaces
from zae_limiter._sync.provisioner import SyncProvisioner
from zae_limiter.clock import ServerClock
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb import table as stored_table
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD

if TYPE_CHECKING:
    from zae_limiter._sync.engines.dynamodb.history import DynamoAudit

REQUEST_TIMEOUT_S = 10.0  # nothing waits for these calls but an apply
DEFAULT_AUDIT_DAYS = 90  # of a table that does not say


class NoCache:
    """Stands for the caches of a repository: a function that acquires nothing keeps none."""

    def on_bucket_read(
        self, namespace_id: str, entity_id: str, resource: str, item: object
    ) -> None: ...

    def on_entity_read(self, namespace_id: str, entity_id: str, entity: object) -> None: ...

    def clear(self) -> None: ...

    def set_policy(self, namespace_id: str, policy: object) -> None: ...


class TablePorts:
    """The ports that a manifest needs."""

    def __init__(self, client: DynamoClient, audit_days: int) -> None:
        self.parallel = Parallel()
        context = self._context = TableContext(
            client, cast("Any", NoCache()), self.parallel, audit_days
        )
        self.configs = DynamoConfigs(context)
        self.entities = DynamoEntities(context)
        self.namespaces = DynamoNamespaces(context)
        self.documents = DynamoDocuments(context)

    def keep_audit(self, days: int) -> None:
        """Keep the events of changes that long."""
        self._context.audit_days = days

    @property
    def audit(self) -> DynamoAudit:
        """The audit log, which only a diff reads."""
        from zae_limiter._sync.engines.dynamodb.history import DynamoAudit

        return DynamoAudit(self._context)


class NamespaceContext(NamedTuple):
    """What a provisioner uses of a repository."""

    engine: TablePorts
    namespace_id: str
    namespace_name: str
    clock: ServerClock
    parallel: Parallel
    cache: NoCache = NoCache()


@contextmanager
def opened_provisioner(table: str, namespace: str, principal: str) -> Iterator[SyncProvisioner]:
    """Open a namespace of the table for the block."""
    clock = ServerClock()
    client = DynamoClient(
        table,
        endpoint_url=_public_endpoint(),
        request_timeout=REQUEST_TIMEOUT_S,
        server_clock=clock,
    )
    ports = TablePorts(client, DEFAULT_AUDIT_DAYS)
    try:
        record = ports.documents.get(RESERVED_NAMESPACE, VERSION_RECORD) or {}
        stored_table.check_version_record(record, table)
        ports.keep_audit(stored_table.audit_days_of(record) or DEFAULT_AUDIT_DAYS)
        found = ports.namespaces.find(namespace)
        if found is None:
            raise NamespaceNotFoundError(namespace)
        context = NamespaceContext(ports, found.namespace_id, found.name, clock, ports.parallel)
        yield SyncProvisioner(cast("Any", context), principal)
    finally:
        client.close()
        ports.parallel.close()


def _public_endpoint() -> str | None:
    """Return DynamoDB's public endpoint; None if the environment names another one.

    Without it the endpoint would be looked up in botocore, whose import takes a cold start's time.
    """
    if os.environ.get("AWS_ENDPOINT_URL_DYNAMODB") or os.environ.get("AWS_ENDPOINT_URL"):
        return None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        return None
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://dynamodb.{region}.{suffix}"
