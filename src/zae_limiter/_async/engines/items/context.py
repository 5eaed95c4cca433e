"""What the ports of an engine share: store, transactions, audit log, cache listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from zae_limiter._async.engines.items.later_writes import LaterWrites
from zae_limiter._async.engines.items.transactions import TransactionPlan, Transactions
from zae_limiter.clock import Deadline
from zae_limiter.items.recent_changes import ActiveNamespaces, RecentChanges
from zae_limiter.items.stored import audit, configs, keys
from zae_limiter.items.stored.update import ItemWrite
from zae_limiter.items.version_record import DEFAULT_USAGE_DAYS
from zae_limiter.models.audit import AuditAction, AuditedChange
from zae_limiter.naming import RESERVED_NAMESPACE
from zae_limiter.runtime.parallel import Parallel

if TYPE_CHECKING:
    from typing import Protocol

    from zae_limiter._async.engines.items.port import ItemStore
    from zae_limiter.items.stored.attributes import Item
    from zae_limiter.models.entity import Entity

    class CacheListener(Protocol):
        """Gets the items that other ports read or delete, so that a cache can store them."""

        def on_bucket_read(
            self, namespace_id: str, entity_id: str, resource: str, item: Item | None
        ) -> None:
            """Store the item of a bucket's first shard; None if there is no item."""

        def on_entity_read(self, namespace_id: str, entity_id: str, entity: Entity | None) -> None:
            """Store an entity; None if the entity is not registered."""


T = TypeVar("T")


DAY_MS = 86_400_000


class TableContext:
    """One store of items, and the ways to commit a change, to log it and to tell the cache.

    The table keeps usage for ``usage_days``; ``usage_ms`` is the same in milliseconds.
    """

    def __init__(
        self,
        store: ItemStore,
        listener: CacheListener,
        parallel: Parallel,
        audit_retention_days: int,
    ) -> None:
        self.store = store
        self.listener = listener
        self.parallel = parallel
        self.recent_changes = RecentChanges()
        self.active_namespaces = ActiveNamespaces()
        self.later = LaterWrites(store, parallel)
        self._transactions = Transactions(store, self.recent_changes)
        self.audit_days = audit_retention_days
        self.keep_usage(DEFAULT_USAGE_DAYS)

    def keep_usage(self, days: int) -> None:
        """Set how long usage is kept, which all clients of the table agree on; 0: none is."""
        self.usage_days, self.usage_ms = days, days * DAY_MS

    async def commit(
        self, namespace_id: str, plan: Callable[[Deadline], Awaitable[TransactionPlan[T]]]
    ) -> T:
        """Plan and write a change, and plan it again after a conflict with another writer."""
        return await self._transactions.commit(namespace_id, plan)

    async def refuse_if_purging(self, namespace_id: str) -> None:
        """Raise NamespaceStateError if the namespace is being purged.

        Changes of the configuration need no such check: the mark of a purge is part of its item.
        """
        active = self.active_namespaces
        if namespace_id == RESERVED_NAMESPACE or active.is_known(namespace_id):
            return
        system = await self.store.get(keys.system_config(namespace_id))
        configs.refuse_if_purging(namespace_id, system)
        active.note(namespace_id)

    def log(
        self,
        namespace_id: str,
        change: AuditedChange,
        action: AuditAction,
        details: dict[str, Any] | None = None,
    ) -> ItemWrite:
        """Return the action of a transaction that writes its audit event."""
        return audit.log(namespace_id, change.event(action, details), self.audit_days)
