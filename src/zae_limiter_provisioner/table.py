"""The table of the function: the ports that a manifest needs, over the wire of a function.

The whole engine would import buckets, shards and botocore, none of which a manifest needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from zae_limiter._sync.engines.dynamodb.configs import DynamoConfigs
from zae_limiter._sync.engines.dynamodb.context import TableContext
from zae_limiter._sync.engines.dynamodb.documents import DynamoDocuments
from zae_limiter._sync.engines.dynamodb.entities import DynamoEntities
from zae_limiter._sync.engines.dynamodb.history import DynamoAudit
from zae_limiter._sync.engines.dynamodb.namespaces import DynamoNamespaces
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb import version_record
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter_ops._sync.provisioner import SyncProvisioner
from zae_limiter_ops.transport.function_wire import FunctionWire

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

    def __init__(self, wire: FunctionWire, audit_days: int) -> None:
        client: Any = wire  # it has the methods of a client that these ports call
        listener: Any = NoCache()  # likewise, of a listener
        self.parallel = Parallel()
        self.context = TableContext(client, listener, self.parallel, audit_days)
        self.configs = DynamoConfigs(self.context)
        self.entities = DynamoEntities(self.context)
        self.documents = DynamoDocuments(self.context)
        self.namespaces = DynamoNamespaces(self.context)
        self.audit = DynamoAudit(self.context)


class NamespaceContext(NamedTuple):
    """What a provisioner uses of a repository.

    ``clock`` is the host's: Lambda keeps those of its hosts right, and a lease is for a minute.
    """

    engine: TablePorts
    namespace_id: str
    namespace_name: str
    clock: Callable[[], int]
    parallel: Parallel
    cache: NoCache = NoCache()


class OpenedProvisioner:
    """Opens a namespace of the table for a block."""

    def __init__(self, table: str, namespace: str, principal: str) -> None:
        self._table = table
        self._namespace = namespace
        self._principal = principal
        self._wire = FunctionWire(table, request_timeout=REQUEST_TIMEOUT_S)
        self._ports = TablePorts(self._wire, DEFAULT_AUDIT_DAYS)

    def __enter__(self) -> SyncProvisioner:
        try:
            return self._provisioner()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._wire.close()
        self._ports.parallel.close()

    def _provisioner(self) -> SyncProvisioner:
        ports = self._ports
        record = ports.documents.get(RESERVED_NAMESPACE, VERSION_RECORD) or {}
        version_record.check_version_record(record, self._table)
        ports.context.audit_days = version_record.audit_days_of(record) or DEFAULT_AUDIT_DAYS
        found = ports.namespaces.find(self._namespace)
        if found is None:
            raise NamespaceNotFoundError(self._namespace)
        context: Any = NamespaceContext(
            ports, found.namespace_id, found.name, _now_ms, ports.parallel
        )
        return SyncProvisioner(context, self._principal)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
