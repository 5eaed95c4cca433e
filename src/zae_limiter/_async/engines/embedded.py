"""The ports over a client that runs operations in a transaction: shared by memory and SQLite.

Every method forwards to an operation of ``zae_limiter.embedded``, which reads, decides and writes.
What each promises is said in ``zae_limiter._async.ports``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import (
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
)
from zae_limiter.clock import Clock, Deadline
from zae_limiter.concurrency.locks import LockFreeCount
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.embedded import (
    buckets,
    configs,
    entities,
    history,
    housekeeping,
    namespaces,
    rejections,
)
from zae_limiter.embedded.tables import Listing, Tables
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.audit import AuditedChange, AuditEvent, config_subject
from zae_limiter.models.backend import BackendCapabilities, StoreStats
from zae_limiter.models.bucket import BucketState, ResourceCapacity
from zae_limiter.models.config import ConfigLevel, ConfigSnapshot, LevelConfig, SharedConfig
from zae_limiter.models.entity import Entity, Namespace
from zae_limiter.models.usage import UsageRanking, UsageSnapshot, UsageSummary
from zae_limiter.settings import Settings
from zae_limiter.usage_report import UsageQuery

T = TypeVar("T")


class EmbeddedClient(Protocol):
    """Runs operations of ``zae_limiter.embedded``: functions of the tables, then of ``args``."""

    async def write(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        receipt: Receipt[T] | None = None,
        *,
        must_run: bool = False,
        deadline: Deadline | None = None,
    ) -> T:
        """Run an operation in one transaction, all or nothing.

        ``receipt`` holds the result if and only if the transaction was committed. With
        ``must_run`` the operation is run even if its caller is cancelled. A store that waits for
        its lock does so until the ``deadline``; None stands for its request timeout.
        """

    async def read(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        deadline: Deadline | None = None,
    ) -> T:
        """Run a short operation on a snapshot of the store."""

    async def list(self, operation: Callable[..., Listing[T]], args: tuple[Any, ...]) -> T:
        """Run a listing, each page of it on a snapshot; no other call waits for longer."""

    def groups(self) -> tuple[int, int, int]:
        """Transactions of several callers, how many callers shared one, and the most that did."""

    async def close(self) -> None:
        """Wait for the operations in progress, then close the store."""


class EmbeddedBuckets:
    """Buckets: a child and its parent are charged in one transaction."""

    def __init__(
        self, client: EmbeddedClient, usage_retention_days: int, audit_retention_days: int
    ) -> None:
        self._client = client
        self._retention = (usage_retention_days, audit_retention_days)  # usage: until it is stored
        self._charges = count(1)
        self._rejections = rejections.NotedRejections()
        self.granted, self.rejected, self.settled = (LockFreeCount() for _ in range(3))

    async def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        deadline = request.deadline
        args = (namespace_id, request, self._rejections)
        outcome = await self._client.write(buckets.charge, args, receipt, deadline=deadline)
        if type(outcome) is Grant:
            self.granted.add()
        elif type(outcome) is Rejection:
            self.rejected.add()
            if request.is_acquire:
                self._rejections.note(namespace_id, request, outcome)
        if next(self._charges) % housekeeping.EVERY_CHARGES == 0:
            now_and_retention = (request.clock(), *self._retention)
            await self._quietly(housekeeping.keep_house, now_and_retention, deadline)
            await self.store_rejections(deadline)
        return outcome

    async def join_retention(self, named_days: int | None) -> None:
        """Store how long usage is kept, on opening: if the opener names it, or none is stored.

        Programs that share a store would otherwise each delete by a number of their own.
        """
        stored = await self._client.read(housekeeping.stored_retention, ())
        days = named_days or stored or self._retention[0]
        if days == stored:
            return
        before = await self._client.write(housekeeping.set_retention, (days,))
        if before not in (None, days):
            import logging  # not before it is needed: `import zae_limiter` does without it

            logger = logging.getLogger(__name__)
            logger.info("usage is kept for %d days from now on, instead of %d", days, before)

    async def store_rejections(self, deadline: Deadline | None = None) -> None:
        """Store a batch of the rejections that no write to their bucket has taken along."""
        noted = self._rejections.take_batch()
        if noted:
            await self._quietly(rejections.store_rejections, (noted,), deadline)

    async def close(self) -> None:
        """Store all rejections that were noted."""
        while self._rejections.by_bucket:
            await self.store_rejections()

    async def delete_expired_buckets(self, now_ms: int) -> None:
        """Delete a batch of expired buckets, on opening.

        Many clients are closed before they have made as many charges as lead to it. Usage and
        audit events stay: a client that only looks, as a command does, does not know for how
        long the clients that charge want to keep them.
        """
        await self._quietly(housekeeping.delete_expired_buckets, (now_ms,))

    async def _quietly(
        self,
        operation: Callable[..., None],
        args: tuple[Any, ...],
        deadline: Deadline | None = None,
    ) -> None:
        """Ignore errors: damaged old rows must not fail the charge that runs this."""
        with suppress(InfrastructureError):
            await self._client.write(operation, args, deadline=deadline)

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: Receipt[None],
    ) -> None:
        await self._client.write(
            buckets.settle,
            (namespace_id, settlements, clock, self._rejections),
            receipt,
            must_run=True,
        )
        self.settled.add()

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        return await self._client.read(buckets.get, (namespace_id, entity_id, resource))

    async def states(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> list[BucketState]:
        return await self._client.list(buckets.states, (namespace_id, entity_id, resource, clock))

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        *,
        after: tuple[str, str] | None,
        limit: int,
        clock: Clock,
    ) -> tuple[list[BucketState], tuple[str, str] | None]:
        return await self._client.read(
            partial(buckets.page, limit=limit, clock=clock),
            (namespace_id, entity_id, resource, after),
        )

    async def resources(self, namespace_id: str) -> list[str]:
        return await self._client.read(buckets.resources, (namespace_id,))

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        return await self._client.list(
            partial(buckets.capacity, parents_only=parents_only, clock=clock),
            (namespace_id, resource, limit_name),
        )

    async def reset(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        change = AuditedChange.by(principal, entity_id, now_ms, resource)
        return await self._client.write(buckets.reset, (namespace_id, change))

    async def top_up(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        now_ms: int,
        principal: str | None,
    ) -> bool:
        change = AuditedChange.by(principal, entity_id, now_ms, resource)
        return await self._client.write(buckets.top_up, (namespace_id, change, amounts))


class EmbeddedConfigs:
    """Stored limits: a change, its audit event and the version count are one transaction."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def snapshot(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        *,
        shared: SharedConfig | None = None,
        fresh: bool = False,
        deadline: Deadline | None = None,
    ) -> ConfigSnapshot:
        return await self._client.read(
            configs.snapshot, (namespace_id, entity_id, resource), deadline
        )

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        return await self._client.read(
            configs.get, (namespace_id, ConfigLevel(entity_id, resource))
        )

    async def put(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        config: LevelConfig,
        now_ms: int,
        principal: str | None,
    ) -> None:
        level = ConfigLevel(entity_id, resource)
        change = AuditedChange.by(principal, config_subject(level), now_ms, resource or None)
        await self._client.write(configs.put, (namespace_id, level, config, change))

    async def delete(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        level = ConfigLevel(entity_id, resource)
        change = AuditedChange.by(principal, config_subject(level), now_ms, resource or None)
        return await self._client.write(configs.delete, (namespace_id, level, change))

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        return await self._client.list(configs.resources_with_defaults, (namespace_id,))

    async def resources_with_entity_configs(self, namespace_id: str) -> list[str]:
        return await self._client.list(configs.resources_with_entity_configs, (namespace_id,))

    async def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        return await self._client.list(
            configs.configured_entities, (namespace_id, resource, after, limit)
        )


class EmbeddedEntities:
    """Entities: a change and its audit event are one transaction."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        change = AuditedChange.by(principal, entity.id, now_ms)
        await self._client.write(entities.create, (namespace_id, entity, change))

    async def get(self, namespace_id: str, entity_id: str) -> Entity | None:
        return await self._client.read(entities.get, (namespace_id, entity_id))

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        children, _ = await self.page(namespace_id, parent_id, "", None)
        return children

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> tuple[list[Entity], str | None]:
        return await self._client.list(entities.page, (namespace_id, parent_id, after, limit))

    async def set_parent(
        self,
        namespace_id: str,
        entity_id: str,
        parent_id: str | None,
        *,
        cascade: bool,
        now_ms: int,
        principal: str | None,
    ) -> Entity | None:
        change = AuditedChange.by(principal, entity_id, now_ms)
        return await self._client.write(
            entities.set_parent, (namespace_id, change, parent_id, cascade)
        )

    async def delete(
        self, namespace_id: str, entity_id: str, now_ms: int, principal: str | None
    ) -> bool:
        change = AuditedChange.by(principal, entity_id, now_ms)
        return await self._client.write(entities.delete, (namespace_id, change))


class EmbeddedNamespaces:
    """Namespaces: each step is one transaction; a purge is many, and can be resumed."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None = None
    ) -> dict[str, str]:
        return await self._client.write(namespaces.register, (names, now_ms, principal))

    async def find(self, name: str) -> Namespace | None:
        return await self._client.read(namespaces.find, (name,))

    async def all(self) -> list[Namespace]:
        return await self._client.read(namespaces.listing, ())

    async def soft_delete(self, name: str, now_ms: int, principal: str | None = None) -> str:
        return await self._client.write(namespaces.soft_delete, (name, now_ms, principal))

    async def recover(self, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
        return await self._client.write(namespaces.recover, (namespace_id, now_ms, principal))

    async def begin_purge(self, namespace_id: str) -> int:
        return await self._client.write(namespaces.begin_purge, (namespace_id,))

    async def purge_batch(self, namespace_id: str, limit: int) -> int:
        return await self._client.write(namespaces.purge_batch, (namespace_id, limit))

    async def finish_purge(
        self, namespace_id: str, now_ms: int, principal: str | None = None
    ) -> None:
        await self._client.write(namespaces.finish_purge, (namespace_id, now_ms, principal))


class EmbeddedUsage:
    """Usage windows, closed and open."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        query: UsageQuery,
        *,
        limit: int,
        next_key: str | None,
    ) -> tuple[list[UsageSnapshot], str | None]:
        return await self._client.list(
            partial(history.usage_page, limit=limit, next_key=next_key),
            (namespace_id, entity_id, resource, query),
        )

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        return await self._client.list(
            history.usage_summary, (namespace_id, entity_id, resource, query)
        )

    async def top(
        self, namespace_id: str, resource: str | None, query: UsageQuery, by: str | None, limit: int
    ) -> UsageRanking:
        return await self._client.list(
            history.usage_top, (namespace_id, resource, query, by, limit)
        )


class EmbeddedAudit:
    """Audit events, newest first."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def events(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        return await self._client.list(
            history.events, (namespace_id, entity_id, before_event_id, limit)
        )


class EmbeddedDocuments:
    """Small JSON documents by key."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        return await self._client.read(namespaces.get_document, (namespace_id, key))

    async def put(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        await self._client.write(namespaces.put_document, (namespace_id, key, value))


class EmbeddedEngine:
    """An embedded engine: all ports over one client."""

    def __init__(
        self,
        client: EmbeddedClient,
        capabilities: BackendCapabilities,
        settings: Settings,
        usage_retention_days: int,
        *,
        request_timeout: float | None = None,
    ) -> None:
        self.capabilities = capabilities
        self.request_timeout = request_timeout
        self._client = client
        self.buckets = EmbeddedBuckets(
            client,
            settings.usage_retention_days or usage_retention_days,
            settings.audit_retention_days,
        )
        self.configs = EmbeddedConfigs(client)
        self.entities = EmbeddedEntities(client)
        self.namespaces = EmbeddedNamespaces(client)
        self.usage = EmbeddedUsage(client)
        self.audit = EmbeddedAudit(client)
        self.documents = EmbeddedDocuments(client)

    def stats(self) -> StoreStats:
        """Count what callers asked for; there are no requests to a server to be counted."""
        granted, settlements = self.buckets.granted.value(), self.buckets.settled.value()
        rejected = self.buckets.rejected.value()
        groups, grouped, largest_group = self._client.groups()
        return StoreStats(
            charges=granted + rejected,
            granted=granted,
            rejected=rejected,
            settlements=settlements,
            calls=granted + rejected + settlements,
            writes=granted + settlements,
            groups=groups,
            grouped=grouped,
            largest_group=largest_group,
        )

    async def ping(self) -> None:
        await self.namespaces.all()

    async def probe(self) -> None:
        """Return if the store takes writes: a reader may still be answered when no writer is."""
        await self._client.write(_nothing, ())

    async def close(self) -> None:
        await self.buckets.close()
        await self._client.close()

    async def delete_all(self) -> None:
        await self._client.write(_clear, ())


def _nothing(tables: Tables) -> None:
    """Take the lock of a write, and change nothing."""


def _clear(tables: Tables) -> None:
    tables.clear()
