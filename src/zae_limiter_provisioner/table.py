"""The table of the function, with the ports that a manifest needs and no others.

An engine would import buckets, shards and a client for many callers, which takes longer than all
the rest of a cold start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zae_limiter._light_classes import NamedTuple
from zae_limiter._sync.engines.dynamodb.requests import batch_get_all, get_item
from zae_limiter._sync.provisioner import SyncProvisioner
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb import version_record
from zae_limiter.dynamodb.items import configs, entities, keys, system
from zae_limiter.dynamodb.items.attributes import decode_document
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.entity import Entity, Namespace
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.transport.function_wire import FunctionWire

if TYPE_CHECKING:
    from zae_limiter._sync.engines.dynamodb.context import TableContext
    from zae_limiter._sync.engines.dynamodb.history import DynamoAudit
    from zae_limiter.models.batch import ConfigBatch
    from zae_limiter.models.config import ConfigLevel, LevelConfig

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


class StoredConfigs:
    """Reads limits; what writes them is imported by an apply that has changes to make."""

    def __init__(self, ports: TablePorts) -> None:
        self._ports = ports

    def get_many(
        self, namespace_id: str, levels: Sequence[ConfigLevel]
    ) -> dict[ConfigLevel, LevelConfig]:
        by_key = {configs.key(namespace_id, level): level for level in levels}
        items = batch_get_all(self._ports.client, list(by_key), self._ports.parallel)
        decoded = {by_key[key]: configs.decode(item) for key, item in items.items()}
        return {level: config for level, config in decoded.items() if config is not None}

    def write(self, namespace_id: str, batch: ConfigBatch, *, now_ms: int) -> int | None:
        from zae_limiter._sync.engines.dynamodb.configs import DynamoConfigs

        return DynamoConfigs(self._ports.context).write(namespace_id, batch, now_ms=now_ms)


class RegisteredEntities:
    """Reads entities; an apply changes them together with their limits."""

    def __init__(self, ports: TablePorts) -> None:
        self._ports = ports

    def get_many(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        wanted = [keys.entity(namespace_id, entity_id) for entity_id in entity_ids]
        items = batch_get_all(self._ports.client, wanted, self._ports.parallel)
        registered = map(entities.decode, items.values())
        return {entity.id: entity for entity in registered}


class StoredDocuments:
    """Reads documents; what replaces one is imported by an apply."""

    def __init__(self, ports: TablePorts) -> None:
        self._ports = ports

    def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        item = get_item(self._ports.client, keys.record(namespace_id, key))
        return None if item is None else decode_document(item)

    def replace(self, *args: Any, **options: Any) -> bool:
        from zae_limiter._sync.engines.dynamodb.documents import DynamoDocuments

        return DynamoDocuments(self._ports.context).replace(*args, **options)


class TablePorts:
    """The ports that a manifest needs."""

    def __init__(self, wire: FunctionWire, audit_days: int) -> None:
        self.client: Any = wire  # it has what these ports call of a client
        self.parallel = Parallel()
        self.audit_days = audit_days
        self.configs = StoredConfigs(self)
        self.entities = RegisteredEntities(self)
        self.documents = StoredDocuments(self)

    def find_namespace(self, name: str) -> Namespace:
        """Return the namespace of that name; raises NamespaceNotFoundError."""
        item = get_item(self.client, keys.namespace_by_name(name))
        if item is None:
            raise NamespaceNotFoundError(name)
        return system.decode_namespace(item)

    @cached_property
    def context(self) -> TableContext:
        """What writes changes with their audit events, and keeps those for ``audit_days``."""
        from zae_limiter._sync.engines.dynamodb.context import TableContext

        listener: Any = NoCache()  # it has what these ports call of a listener
        return TableContext(self.client, listener, self.parallel, self.audit_days)

    @property
    def audit(self) -> DynamoAudit:
        """The audit log, which only a diff reads."""
        from zae_limiter._sync.engines.dynamodb.history import DynamoAudit

        return DynamoAudit(self.context)


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
        ports.audit_days = version_record.audit_days_of(record) or DEFAULT_AUDIT_DAYS
        found = ports.find_namespace(self._namespace)
        context: Any = NamespaceContext(
            ports, found.namespace_id, found.name, _now_ms, ports.parallel
        )
        return SyncProvisioner(context, self._principal)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
