"""What the ports share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.transactions import Plan, Transactions
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb.own_writes import OwnWrites
from zae_limiter.models.audit import AuditAction
from zae_limiter.models.entity import Entity
from zae_limiter.records.dynamodb import audit
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.attributes import Item
from zae_limiter.records.dynamodb.audit import Change
from zae_limiter.transport.deadline import Deadline

T = TypeVar("T")

AUDIT_RETENTION_DAYS = 90


class Primer(Protocol):
    """Is told what is read or removed on the way, so that nobody has to ask again."""

    def saw_bucket(
        self, namespace_id: str, entity_id: str, resource: str, item: Item | None
    ) -> None:
        """The item of a bucket's first shard; None if there is none."""

    def saw_entity(self, namespace_id: str, entity_id: str, entity: Entity | None) -> None:
        """An entity; None if there is none."""


class Store:
    """A table, and how changes of it are made and logged."""

    def __init__(
        self,
        client: DynamoClient,
        primer: Primer,
        parallel: Parallel,
        audit_retention_days: int = AUDIT_RETENTION_DAYS,
    ) -> None:
        self.client = client
        self.primer = primer
        self.parallel = parallel
        self.own_writes = OwnWrites()
        self._transactions = Transactions(client, self.own_writes)
        self._audit_retention_days = audit_retention_days

    async def commit(self, namespace_id: str, plan: Callable[[Deadline], Awaitable[Plan[T]]]) -> T:
        """Plan and write, again if others come between."""
        return await self._transactions.commit(namespace_id, plan)

    def log(
        self,
        namespace_id: str,
        change: Change,
        action: AuditAction,
        details: dict[str, Any] | None = None,
    ) -> Action:
        """The part of a transaction that logs it."""
        return audit.log(namespace_id, change.event(action, details), self._audit_retention_days)
