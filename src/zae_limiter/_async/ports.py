"""What an engine must provide. The docstrings are promises that the contract suite checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zae_limiter.admission.image import BucketImage
    from zae_limiter.admission.in_force import InForce
    from zae_limiter.admission.request import (
        AcquireEnd,
        ChargeOutcome,
        ChargeRequest,
        Renewal,
        RenewalOutcome,
        Settlement,
    )
    from zae_limiter.clock import Clock, Deadline
    from zae_limiter.concurrency.receipt import Receipt
    from zae_limiter.models.audit import AuditEvent
    from zae_limiter.models.backend import BackendCapabilities, StoreStats
    from zae_limiter.models.batch import ConfigBatch, Guard
    from zae_limiter.models.bucket import BucketState, ResourceCapacity
    from zae_limiter.models.config import (
        ConfigLevel,
        ConfigSnapshot,
        LevelConfig,
        SharedConfig,
        StoredLevel,
    )
    from zae_limiter.models.entity import Entity, Namespace
    from zae_limiter.models.usage import UsageRanking, UsageSnapshot, UsageSummary
    from zae_limiter.usage.report import UsageQuery


class BucketStore(Protocol):
    """Buckets. A write is durable when it returns, as far as the engine is durable.

    One bucket changes atomically. Several change atomically where ``atomic_cascade`` is declared;
    otherwise one write per bucket is made, and undone if a later one fails.
    """

    async def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        """Charge every bucket of the request or none, judged at one stamp of its clock.

        Never admits beyond capacity + accrued. ``receipt`` holds the outcome if and only if it
        is committed, also when the call is cancelled or interrupted. A grant carries the buckets
        as the charge has left them. Raises
        RateLimiterUnavailable if the outcome is unknown, PermissionDenied if the store denies
        access.
        """

    def count(self, namespace_id: str, ended: AcquireEnd) -> None:
        """Note how an acquire ended, without a call; it is counted once, in the hour it ended.

        A rejection counts for the entity that asked and for a parent that held too few tokens. The
        counts are stored with the next write to the bucket, within 30 s, or when the engine is
        closed; those of a process that is killed before are lost.
        """

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: Receipt[None],
    ) -> None:
        """Write every debt and credit, once, whether or not there are tokens, and free slots.

        Once called it is carried out even if the caller is cancelled. ``receipt`` holds an
        entry if it is committed, or if its outcome is unknown: then it must not be repeated.
        """

    async def renew(
        self, namespace_id: str, renewals: tuple[Renewal, ...], clock: Clock
    ) -> list[RenewalOutcome]:
        """Renew slots that are held, each renewal on its own; once called it is carried out.

        Returns an outcome for each and raises no outage. Slots that have expired are never
        brought back: another caller may hold them.
        """

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        """Return one bucket as it is stored; None means that it is full."""

    async def states(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> list[BucketState]:
        """Return the buckets of an entity, a resource, or both, sorted by entity and resource."""

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
        """Return at most ``limit`` buckets after the one of ``after`` (entity and resource).

        They are in an order that the store chooses and keeps. The second value is the last
        bucket of the page; None if there are no more.
        """

    async def resources(self, namespace_id: str) -> list[str]:
        """Return the resources in use, sorted: those that buckets were created on.

        A resource stays in use when its buckets are gone, until its namespace is purged.
        """

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        """Sum one limit of a resource over all its entities, or over those without a parent.

        Each entity that has a bucket there counts once: with its stored limit, or, if only calls
        with limits of their own were made, with the largest limit of that name that they brought.
        """

    async def reset(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        *,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Fill a bucket and log what was forgiven; False if there is no such bucket.

        Usage stays counted.
        """

    async def top_up(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        *,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Add whole tokens up to the capacity and log how many; False if there is no bucket."""

    async def pause(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        until_ms: int,
        *,
        in_force: InForce | None,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Admit no charge of a bucket until a moment, and log it; levels and usage stay.

        Of several pauses the latest end holds; one that ends at ``now_ms`` lifts the pause. False
        if that changes nothing. A bucket that does not exist is created, under ``in_force``.
        """


class ConfigStore(Protocol):
    """Stored limits. Each change, its audit event and the version count are one transaction.

    A configuration level is named by ``entity_id`` and ``resource``; the empty string means
    none: a resource's defaults have no entity, the system's have neither.
    """

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
        """Return all levels for an (entity, resource), the entity, and the version.

        They are read at one moment if ``fresh``. Otherwise the answer may lag a little behind
        changes made through other clients. ``shared`` is what was read a moment ago for another
        entity on the resource: a store need not read that again. ``deadline`` is that of the
        acquire; None gives the read the store's usual time.
        """

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        """Return the configuration of one level."""

    async def put(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        config: LevelConfig,
        *,
        now_ms: int,
        principal: str | None,
        if_missing: bool = False,
    ) -> StoredLevel:
        """Replace the configuration of one level, or with ``if_missing`` only a missing one.

        A level that has limits is then left alone, also when callers race, and a policy that is
        stored without limits is kept. A write that changes nothing is not logged and does not
        count the version.
        """

    async def delete(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        *,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Delete the configuration of one level; False if there was none."""

    async def get_many(
        self, namespace_id: str, levels: Sequence[ConfigLevel]
    ) -> dict[ConfigLevel, LevelConfig]:
        """Return those of the levels that are configured; each as it is at a moment of the call."""

    async def write(self, namespace_id: str, batch: ConfigBatch, *, now_ms: int) -> int | None:
        """Make all changes of a batch or none, with one event each and one count of the version.

        Returns how many changes were made: what is stored already is no change and not logged.
        None if the document of the batch's guard has another revision.
        """

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        """Return resources with defaults, sorted."""

    async def resources_with_entity_configs(self, namespace_id: str) -> list[str]:
        """Return resources that entities have own limits on, sorted; ``_default_`` included."""

    async def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        """Return ids of entities with own limits on the resource, sorted, after ``after``."""


class EntityStore(Protocol):
    """Entities. Each change and its audit event are one transaction."""

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        """Add an entity; raises EntityExistsError, also when two callers race."""

    async def get(self, namespace_id: str, entity_id: str) -> Entity | None:
        """Return an entity; None if there is none."""

    async def get_many(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        """Return those of the entities that are registered; each as at a moment of the call."""

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        """Return the entities directly under a parent, sorted by id."""

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> tuple[list[Entity], str | None]:
        """Return entities of a parent or of the whole namespace, and where the next page starts.

        ``after`` is that place, or empty. Children are sorted by id, all entities in an order
        that the store chooses and keeps. Ids that were never created but have buckets are among
        all entities, with an empty ``created_at``.
        """

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
        """Give an entity another parent, or none, and return it; its buckets stay as they are.

        None if there is no such entity. What it has already is no change and not logged.
        """

    async def delete(
        self, namespace_id: str, entity_id: str, now_ms: int, principal: str | None
    ) -> bool:
        """Delete an entity with its limits and buckets; usage and audit stay. False if none."""


class NamespaceStore(Protocol):
    """The registry of namespaces. Each change and its audit event are one transaction."""

    async def register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None = None
    ) -> dict[str, str]:
        """Return ids by name, creating what is missing; idempotent, also when callers race."""

    async def find(self, name: str) -> Namespace | None:
        """Return an active namespace; None if there is none."""

    async def all(self) -> list[Namespace]:
        """Return the namespaces in any state, sorted by name."""

    async def soft_delete(self, name: str, now_ms: int, principal: str | None = None) -> str:
        """Free the name, keep the data, and return the id."""

    async def recover(self, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
        """Undo a soft delete and return the name; NamespaceStateError if the name is in use."""

    async def begin_purge(self, namespace_id: str) -> int:
        """Mark a namespace as being purged; raises NamespaceStateError unless it is deleted.

        Returns how many rows that has deleted already.
        """

    async def purge_batch(self, namespace_id: str, limit: int) -> int:
        """Delete up to ``limit`` rows of data and return how many; 0 when none are left."""

    async def finish_purge(
        self, namespace_id: str, now_ms: int, principal: str | None = None
    ) -> None:
        """Delete the registry entry of a namespace that is being purged."""


class UsageStore(Protocol):
    """Usage by windows of time; every net token is counted exactly once.

    Queries are about an entity, a resource, both, or, with neither, the whole namespace. Acquires
    that were rejected or have waited are counted as ``BucketStore.count`` says.
    """

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
        """Return windows after ``next_key``, oldest first, and the key of the next page."""

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        """Sum all windows of the query; over several entities each token counts once."""

    async def top(
        self, namespace_id: str, resource: str | None, query: UsageQuery, by: str | None, limit: int
    ) -> UsageRanking:
        """Rank entities by the hours of the query: by a limit, or by admitted acquires."""


class AuditLog(Protocol):
    """Events, written by the stores above in the transaction of the change."""

    async def events(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Return events older than ``before_event_id``, newest first; None: of all subjects."""


class DocumentStore(Protocol):
    """Small JSON documents by key: the version record, the state of the provisioner."""

    async def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        """Return a document; None if there is none."""

    async def put(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        """Write a document over what its key held."""

    async def replace(
        self,
        namespace_id: str,
        key: str,
        value: dict[str, Any],
        *,
        revision: str | None,
        guard: Guard | None = None,
    ) -> bool:
        """Write a document if the stored one has this revision; False if it has another.

        The revision of a document is its field ``revision``; each write must bring a new one.
        None stands for a document without one, or for none. ``guard`` is another document that
        must have the revision that it names.
        """


class Engine(Protocol):
    """A store: one port per topic."""

    @property
    def capabilities(self) -> BackendCapabilities: ...
    @property
    def request_timeout(self) -> float | None:
        """Seconds that one acquire may take with all its calls; None if it never waits."""

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
    def documents(self) -> DocumentStore: ...

    def stats(self) -> StoreStats:
        """Count what this client has done so far."""

    async def ping(self) -> None:
        """Return if the store answers; raise what is wrong otherwise."""

    async def close(self) -> None:
        """Finish calls under way and release all connections. May be called twice."""

    async def delete_all(self) -> None:
        """Delete everything in the store, of all namespaces."""
