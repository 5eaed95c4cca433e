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
from zae_limiter.admission.request import ChargeOutcome, ChargeRequest, Settlement
from zae_limiter.clock import Clock
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.embedded import buckets, configs, entities, history, housekeeping, namespaces
from zae_limiter.embedded.tables import Tables
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.audit import AuditedChange, AuditEvent, config_subject
from zae_limiter.models.backend import BackendCapabilities, StoreStats
from zae_limiter.models.bucket import BucketState, ResourceCapacity
from zae_limiter.models.config import ConfigLevel, ConfigSnapshot, LevelConfig, SharedConfig
from zae_limiter.models.entity import Entity, Namespace
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
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
    ) -> T:
        """Run an operation in one transaction, all or nothing.

        ``receipt`` holds the result if and only if the transaction was committed. With
        ``must_run`` the operation is run even if its caller is cancelled.
        """

    async def read(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run a short operation on a snapshot of the store."""

    async def list(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run an operation that may take long on a snapshot; no other call waits for it."""

    async def close(self) -> None:
        """Wait for the operations in progress, then close the store."""


class EmbeddedBuckets:
    """Buckets: a child and its parent are charged in one transaction."""

    def __init__(
        self, client: EmbeddedClient, usage_retention_days: int, audit_retention_days: int
    ) -> None:
        self._client = client
        self._retention = (usage_retention_days, audit_retention_days)
        self._charges = count(1)
        self._history_ms = 0  # when old usage and audit events were last deleted

    async def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        outcome = await self._client.write(buckets.charge, (namespace_id, request), receipt)
        if next(self._charges) % housekeeping.EVERY_CHARGES == 0:
            await self.keep_house(request.clock(), history=True)
        return outcome

    async def keep_house(self, now_ms: int, *, history: bool = False) -> None:
        """Delete a batch of expired rows: every so many charges, and on opening.

        On opening, since many clients are closed before they have made that many charges. Errors
        are ignored: damaged old rows must not fail the charge that runs this.
        """
        with suppress(InfrastructureError):
            await self._client.write(housekeeping.delete_expired_buckets, (now_ms,))
            if history and now_ms - self._history_ms >= housekeeping.HISTORY_EVERY_MS:
                self._history_ms = now_ms
                await self._client.write(
                    housekeeping.delete_old_history, (now_ms, *self._retention)
                )

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: Receipt[None],
    ) -> None:
        await self._client.write(
            buckets.settle, (namespace_id, settlements, clock), receipt, must_run=True
        )

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        return await self._client.read(buckets.get, (namespace_id, entity_id, resource))

    async def states(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> list[BucketState]:
        return await self._client.list(buckets.states, (namespace_id, entity_id, resource, clock))

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
    ) -> ConfigSnapshot:
        return await self._client.read(configs.snapshot, (namespace_id, entity_id, resource))

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
        return await self.page(namespace_id, parent_id, "", None)

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> list[Entity]:
        return await self._client.list(entities.page, (namespace_id, parent_id, after, limit))

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


class EmbeddedAudit:
    """Audit events, newest first."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def events(
        self, namespace_id: str, entity_id: str, before_event_id: str | None, limit: int
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
        self, client: EmbeddedClient, capabilities: BackendCapabilities, settings: Settings
    ) -> None:
        self.capabilities = capabilities
        self._client = client
        self.buckets = EmbeddedBuckets(
            client, settings.usage_retention_days, settings.audit_retention_days
        )
        self.configs = EmbeddedConfigs(client)
        self.entities = EmbeddedEntities(client)
        self.namespaces = EmbeddedNamespaces(client)
        self.usage = EmbeddedUsage(client)
        self.audit = EmbeddedAudit(client)
        self.documents = EmbeddedDocuments(client)

    def stats(self) -> StoreStats:
        """Return zeros: an embedded engine makes no requests to a server."""
        return StoreStats()

    async def ping(self) -> None:
        await self.namespaces.all()

    async def close(self) -> None:
        await self._client.close()

    async def delete_all(self) -> None:
        await self._client.write(_clear, ())


def _clear(tables: Tables) -> None:
    tables.clear()
