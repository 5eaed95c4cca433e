"""The table of the function, with the ports that a manifest needs and no others.

An engine would import buckets, shards and a client for many callers, which takes longer than all
the rest of a cold start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from zae_limiter._named import NamedTuple
from zae_limiter._sync.engines.dynamodb.configs import DynamoConfigs
from zae_limiter._sync.engines.dynamodb.context import TableContext
from zae_limiter._sync.engines.dynamodb.documents import DynamoDocuments
from zae_limiter._sync.engines.dynamodb.requests import batch_get_all, get_item
from zae_limiter._sync.provisioner import SyncProvisioner
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb import table as stored_table
from zae_limiter.dynamodb.items import entities, keys, system
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.entity import Entity, Namespace
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.transport.function_wire import FunctionWire

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


class RegisteredEntities:
    """Reads entities; an apply changes them together with their limits."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def get_many(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        wanted = [keys.entity(namespace_id, entity_id) for entity_id in entity_ids]
        items = batch_get_all(self._context.client, wanted, self._context.parallel)
        registered = map(entities.decode, items.values())
        return {entity.id: entity for entity in registered}


class TablePorts:
    """The ports that a manifest needs."""

    def __init__(self, wire: FunctionWire, audit_days: int) -> None:
        self.parallel = Parallel()
        client: Any = wire  # what these ports call of a client and a listener, these have
        listener: Any = NoCache()
        context = self._context = TableContext(client, listener, self.parallel, audit_days)
        self.configs = DynamoConfigs(context)
        self.entities = RegisteredEntities(context)
        self.documents = DynamoDocuments(context)

    def find_namespace(self, name: str) -> Namespace:
        """Return the namespace of that name; raises NamespaceNotFoundError."""
        item = get_item(self._context.client, keys.namespace_by_name(name))
        if item is None:
            raise NamespaceNotFoundError(name)
        return system.decode_namespace(item)

    def keep_audit(self, days: int) -> None:
        """Keep the events of changes that long."""
        self._context.audit_days = days

    @property
    def audit(self) -> DynamoAudit:
        """The audit log, which only a diff reads."""
        from zae_limiter._sync.engines.dynamodb.history import DynamoAudit

        return DynamoAudit(self._context)


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


@contextmanager
def opened_provisioner(table: str, namespace: str, principal: str) -> Iterator[SyncProvisioner]:
    """Open a namespace of the table for the block."""
    wire = FunctionWire(table, request_timeout=REQUEST_TIMEOUT_S)
    ports = TablePorts(wire, DEFAULT_AUDIT_DAYS)
    try:
        record = ports.documents.get(RESERVED_NAMESPACE, VERSION_RECORD) or {}
        stored_table.check_version_record(record, table)
        ports.keep_audit(stored_table.audit_days_of(record) or DEFAULT_AUDIT_DAYS)
        found = ports.find_namespace(namespace)
        context: Any = NamespaceContext(
            ports, found.namespace_id, found.name, _now_ms, ports.parallel
        )
        yield SyncProvisioner(context, principal)
    finally:
        wire.close()
        ports.parallel.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
