"""What an engine must provide. The docstrings are promises that the contract suite checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import ChargeOutcome, ChargeRequest, Settlement
from zae_limiter.clock import Clock
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.bucket import BucketState, ResourceCapacity
from zae_limiter.models.config import ConfigSnapshot, LevelConfig, Namespace, SharedConfig
from zae_limiter.models.entity import Entity
from zae_limiter.models.stats import StoreStats
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
from zae_limiter.usage_report import UsageQuery


class BucketStore(Protocol):
    """Balances. A write is durable when it returns, as far as the engine is durable.

    Every bucket changes atomically; several at once do where ``atomic_cascade`` is declared, and
    otherwise as if by one write each, with compensation.
    """

    async def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: list[ChargeOutcome]
    ) -> ChargeOutcome:
        """Charge every bucket of the request or none, judged at one stamp of its clock.

        Never admits beyond capacity + accrued. ``receipt`` holds the outcome if and only if it
        stands, also when the call is cancelled or interrupted. Raises RateLimiterUnavailable
        when nobody can know, PermissionDenied when the store says no.
        """

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: list[None],
    ) -> None:
        """Write every debt and credit, once, whether or not there are tokens.

        Once called it is carried out even if the caller is cancelled. ``receipt`` holds an
        entry if it stands, or may stand although nobody answered: then it must not be repeated.
        """

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        """One bucket as it stands by the clock; None means that it is full."""

    async def states(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> list[BucketState]:
        """All buckets of an entity, of a resource, or of both, sorted by entity and resource."""

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        """One limit of a resource over all its entities, or those without a parent."""

    async def reset(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Fill a bucket and log it; False if it did not exist. Consumption stays counted."""

    async def top_up(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Add whole tokens up to the capacity and log it; False if there is no such bucket."""


class ConfigStore(Protocol):
    """Stored limits. Each change, its audit event and the version count are one transaction.

    A level is named by ``entity_id`` and ``resource``; the empty string stands for "none": a
    resource's defaults have no entity, the system's have neither.
    """

    async def snapshot(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        *,
        shared: SharedConfig | None = None,
        fresh: bool = False,
    ) -> ConfigSnapshot:
        """All levels for an (entity, resource), the entity, and the version.

        At one moment if ``fresh``; else a store may answer from copies that lag a little, except
        behind changes made through itself. ``shared`` is what was read a moment ago for another
        entity on the resource: a store may save itself reading that again.
        """

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        """What one level holds."""

    async def put(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        config: LevelConfig,
        now_ms: int,
        principal: str | None,
    ) -> None:
        """Replace what one level holds."""

    async def delete(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Remove what one level holds; False if it held nothing."""

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        """Sorted."""

    async def resources_with_entity_configs(self, namespace_id: str) -> list[str]:
        """Sorted; ``_default_`` included."""

    async def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        """Sorted ids greater than ``after``."""


class EntityStore(Protocol):
    """Entities. Each change and its audit event are one transaction."""

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        """Add; raises EntityExistsError, also when two callers race."""

    async def get(self, namespace_id: str, entity_id: str) -> Entity | None:
        """One entity."""

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        """Sorted by id."""

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> list[Entity]:
        """Those that come after the id ``after``, of a parent or of the whole namespace.

        Children come sorted by id; all entities in an order that the store chooses and keeps.
        """

    async def delete(
        self, namespace_id: str, entity_id: str, now_ms: int, principal: str | None
    ) -> bool:
        """Remove it with its limits and buckets, keeping usage and audit; False if none."""


class NamespaceStore(Protocol):
    """The registry of namespaces. Each change and its audit event are one transaction."""

    async def register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None = None
    ) -> dict[str, str]:
        """Ids by name; idempotent, also when two callers race."""

    async def find(self, name: str) -> Namespace | None:
        """An active namespace."""

    async def all(self) -> list[Namespace]:
        """All of them, in any state, sorted by name."""

    async def soft_delete(self, name: str, now_ms: int, principal: str | None = None) -> str:
        """Free the name, keep the data; returns the id."""

    async def recover(self, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
        """Undo a soft delete; returns the name. Raises NamespaceStateError if it is taken."""

    async def begin_purge(self, namespace_id: str) -> int:
        """Mark it as being purged; raises NamespaceStateError unless it is deleted.

        Returns how many rows went with that.
        """

    async def purge_batch(self, namespace_id: str, limit: int) -> int:
        """Remove up to ``limit`` rows of data; 0 when nothing is left."""

    async def finish_purge(
        self, namespace_id: str, now_ms: int, principal: str | None = None
    ) -> None:
        """Remove the registry entry."""


class UsageStore(Protocol):
    """Consumption by the hour and day; every net token counted exactly once."""

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        query: UsageQuery,
        limit: int,
        next_key: str | None,
    ) -> tuple[list[UsageSnapshot], str | None]:
        """Windows, oldest first, after ``next_key``; and the key of the next page."""

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        """Totals over all windows of the query."""


class AuditLog(Protocol):
    """Events, written by the stores above in the transaction of the change."""

    async def events(
        self, namespace_id: str, entity_id: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Newest first, older than ``before_event_id``."""


class RecordStore(Protocol):
    """Small JSON documents by key: version record, state of the provisioner."""

    async def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        """One document."""

    async def put(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        """Replace one document."""


class Engine(Protocol):
    """A store with all its ports."""

    @property
    def capabilities(self) -> BackendCapabilities: ...
    @property
    def buckets(self) -> BucketStore: ...
    @property
    def configs(self) -> ConfigStore: ...
    @property
    def entities(self) -> EntityStore: ...
    @property
    def namespaces(self) -> NamespaceStore: ...
    @property
    def usage(self) -> UsageStore: ...
    @property
    def audit(self) -> AuditLog: ...
    @property
    def records(self) -> RecordStore: ...

    def stats(self) -> StoreStats:
        """What this client has done so far."""

    async def ping(self) -> None:
        """Return if the store answers; raise what is wrong otherwise."""

    async def close(self) -> None:
        """Finish what is under way and let go of everything. May be called twice."""

    async def delete_all(self) -> None:
        """Remove everything that the store holds, of all namespaces."""
