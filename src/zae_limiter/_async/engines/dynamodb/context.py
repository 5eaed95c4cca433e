"""The table as all ports of an engine share it: client, transactions, audit log, cache listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.transactions import TransactionPlan, Transactions
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb.items import audit
from zae_limiter.dynamodb.items.attributes import Item
from zae_limiter.dynamodb.items.transact_items import Action
from zae_limiter.dynamodb.recent_changes import RecentChanges
from zae_limiter.models.audit import AuditAction, AuditedChange
from zae_limiter.models.entity import Entity
from zae_limiter.transport.calls import Deadline

T = TypeVar("T")


class CacheListener(Protocol):
    """Is called with items that other ports read or delete, so that a cache can store them."""

    def on_bucket_read(
        self, namespace_id: str, entity_id: str, resource: str, item: Item | None
    ) -> None:
        """Take the item of a bucket's first shard; None if there is none."""

    def on_entity_read(self, namespace_id: str, entity_id: str, entity: Entity | None) -> None:
        """Take an entity; None if there is none."""


class TableContext:
    """One table: its client, and how changes are committed, logged and noticed by caches."""

    def __init__(
        self,
        client: DynamoClient,
        listener: CacheListener,
        parallel: Parallel,
        audit_retention_days: int,
    ) -> None:
        self.client = client
        self.listener = listener
        self.parallel = parallel
        self.recent_changes = RecentChanges()
        self._transactions = Transactions(client, self.recent_changes)
        self._audit_retention_days = audit_retention_days

    async def commit(
        self, namespace_id: str, plan: Callable[[Deadline], Awaitable[TransactionPlan[T]]]
    ) -> T:
        """Plan and write a change, again after a conflict with another writer."""
        return await self._transactions.commit(namespace_id, plan)

    def log(
        self,
        namespace_id: str,
        change: AuditedChange,
        action: AuditAction,
        details: dict[str, Any] | None = None,
    ) -> Action:
        """Return the action of a transaction that writes its audit event."""
        return audit.log(namespace_id, change.event(action, details), self._audit_retention_days)
