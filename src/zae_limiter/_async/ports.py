"""The interface of an engine. The docstrings are promises that the contract suite checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zae_limiter.admission.request import Fate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zae_limiter.admission.configuration import ConfigBatch, Guard, Revised
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
    from zae_limiter.admission.thresholds import OnExhausted, OnThreshold, RejectingQuota
    from zae_limiter.clock import Clock, Deadline
    from zae_limiter.models.audit import AuditAction, AuditedChange, AuditEvent
    from zae_limiter.models.backend import BackendCapabilities, StoreStats
    from zae_limiter.models.bucket import BucketEntry, BucketState, ResourceCapacity
    from zae_limiter.models.config import (
        ConfigLevel,
        ConfigSnapshot,
        LevelChange,
        LevelConfig,
        SharedConfig,
    )
    from zae_limiter.models.entity import Entity, Namespace
    from zae_limiter.runtime.finishing import Receipt
    from zae_limiter.usage.report import UsageReport


class Doubt(Protocol):
    """A write whose outcome nobody has told."""

    async def look_up(self) -> Fate:
        """Ask the store what became of the write; raise an outage."""


class NoTrace:
    """A doubt that nothing will ever clear up."""

    async def look_up(self) -> Fate:
        return Fate.NEVER_KNOWN


NO_TRACE = NoTrace()


class Unsettled(NamedTuple):
    """A settlement that is not known to be stored."""

    settlement: Settlement
    doubt: Doubt | None = None  # None if it was certainly not made


class BucketStore(Protocol):
    """Buckets. A write is durable when it returns, if the engine is durable.

    One bucket changes atomically. If the engine declares ``atomic_cascade``, several buckets also
    change atomically; otherwise there is one write per bucket, which is undone if a later one
    fails.
    """

    async def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        """Charge every bucket of the request or none, judged at one stamp of its clock.

        It never admits beyond capacity + accrued. ``receipt`` holds a grant if and only if it
        is committed, even if the call is cancelled or interrupted. A grant carries the buckets as
        they are after the charge. If the outcome is unknown, RateLimiterUnavailable is raised; if
        the store denies access, PermissionDenied.

        If the buckets show that thresholds of quotas are reached that nobody has raised in the
        window, the store marks them, the lowest first, and tells ``request.on_threshold`` of those
        that it has marked itself: no other client is told of them. This may come after the answer.
        It never delays the charge and never makes it fail.
        """

    def count(self, namespace_id: str, ended: AcquireEnd) -> None:
        """Note the end of an acquire, without a call. It is counted once, in the hour it ended.

        A rejection counts for the entity that asked and for a parent that held too few tokens. The
        counts are stored with the next write to the bucket, within 30 s, or when the engine is
        closed. If a process is killed before that, its counts are lost.
        """

    async def mark_exhausted(
        self,
        namespace_id: str,
        rejected: Sequence[RejectingQuota],
        on_exhausted: OnExhausted,
        clock: Clock,
    ) -> None:
        """Mark quotas that have rejected an acquire, as far as nobody has in their windows.

        ``on_exhausted`` is told of those that the store has marked because of this call: no other
        client is told of them. This may come after the call has returned. It raises no outage.
        """

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: Receipt[Sequence[Unsettled]],
        on_threshold: OnThreshold | None = None,
    ) -> None:
        """Write every debt and credit once, whether or not there are tokens, and free slots.

        Once called, it is carried out even if the caller is cancelled. As soon as a part is
        committed, or may be, ``receipt`` holds the parts that are not known to be stored; of these
        only such without a doubt may be written again. Without an outcome nothing was made.
        ``on_threshold`` is told of thresholds as by ``charge``.
        """

    async def renew(
        self, namespace_id: str, renewals: tuple[Renewal, ...], clock: Clock
    ) -> list[RenewalOutcome]:
        """Renew held slots, each renewal on its own. Once called, it is carried out.

        It returns an outcome for each renewal, and raises no outage. Expired slots are never
        renewed, since another caller may hold them.
        """

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        """Return one bucket as it is stored; None if it does not exist, so that it is full."""

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
        """Return at most ``limit`` buckets after the bucket ``after`` (entity and resource).

        The store chooses an order and keeps it. The second value is the last bucket of the page;
        None if there are no more buckets.
        """

    async def some(
        self, namespace_id: str, buckets: Sequence[tuple[str, str]], clock: Clock
    ) -> list[BucketState]:
        """Return these buckets (entity and resource), in this order; missing ones are left out.

        Each bucket is read by its key. The answer may lag a moment behind changes of other clients.
        """

    async def entries(
        self, namespace_id: str, *, after: tuple[str, str] | None, limit: int
    ) -> tuple[list[BucketEntry], tuple[str, str] | None]:
        """Return at most ``limit`` buckets of the namespace after ``after``, undecoded.

        Order and second value are those of ``page``. A reader that has seen the revision of a
        bucket need not decode it again.
        """

    async def resources(self, namespace_id: str) -> list[str]:
        """Return the resources in use, on which buckets were created, sorted.

        A resource stays in use after its buckets are gone, until its namespace is purged.
        """

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        """Sum one limit of a resource over all its entities, or over those without a parent.

        Each entity that has a bucket there counts once: with its configured limit, or, if only
        calls with limits of their own were made, with the largest of these of that name.
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
        """Fill a bucket and log the added tokens; False if there is no such bucket.

        Usage stays counted.
        """

    async def top_up(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        *,
        in_force: InForce | None,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        """Add tokens up to the capacity and log them; False if there is no such bucket.

        A quota gets the whole amount for its running window; for that the bucket is created, under
        the limits in force.
        """

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
        """Admit no charge of a bucket until a moment, and log the pause; levels and usage stay.

        The latest end of several pauses counts; a pause that ends at ``now_ms`` lifts an earlier
        one. False if nothing changes. A missing bucket is created with the limits ``in_force``.
        """


class ConfigStore(Protocol):
    """Stored limits. Each change, its audit event and the version count are one transaction.

    A configuration level is named by ``entity_id`` and ``resource``. The empty string stands for
    none: resource defaults have no entity, and system defaults have neither entity nor resource.
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
        """Return all levels of an entity on a resource, the entity, and the version.

        If ``fresh``, they are read at one moment. Otherwise the answer may lag a little behind
        changes that other clients make. ``shared`` are levels that were read a moment ago for
        another entity on the resource; a store need not read them again. ``deadline`` is the
        deadline of the acquire; with None the read may take the store's usual time.
        """

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        """Return the configuration of one level; None if it has none."""

    async def change(
        self, namespace_id: str, change: LevelChange, *, now_ms: int, principal: str | None
    ) -> Revised[LevelConfig]:
        """Change one level as ``revise_level`` says, and return the level after it.

        What ``if_missing`` keeps is kept, and LimitsChangedError is raised if other limits are
        stored than ``replaces`` says, even if callers race. A change that changes nothing is not
        logged and does not increment the version.
        """

    async def get_many(
        self, namespace_id: str, levels: Sequence[ConfigLevel]
    ) -> dict[ConfigLevel, LevelConfig]:
        """Return the levels that are configured, each as at some moment during the call."""

    async def write(self, namespace_id: str, batch: ConfigBatch) -> int | None:
        """Make all changes of a batch or none, with an event for each and one new version.

        It returns the number of changes that were made; a no-op is not counted and not logged.
        None if the document of the batch's guard has another revision.
        """

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        """Return the resources that have defaults, sorted."""

    async def resources_with_entity_configs(self, namespace_id: str) -> list[str]:
        """Return the resources on which entities have limits, sorted; ``_default_`` included."""

    async def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        """Return the ids after ``after`` of entities with limits on the resource, sorted."""


class EntityStore(Protocol):
    """Entities. Each change and its audit event are one transaction."""

    async def create(
        self, namespace_id: str, entity: Entity, now_ms: int, principal: str | None
    ) -> None:
        """Add an entity; raise EntityExistsError if it exists, even if two callers race."""

    async def get(self, namespace_id: str, entity_id: str) -> Entity | None:
        """Return an entity; None if there is none."""

    async def get_many(self, namespace_id: str, entity_ids: Sequence[str]) -> dict[str, Entity]:
        """Return the registered entities of these, each as at some moment during the call."""

    async def children(self, namespace_id: str, parent_id: str) -> list[Entity]:
        """Return the entities directly under a parent, sorted by id."""

    async def page(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> tuple[list[Entity], str | None]:
        """Return entities of a parent or of the whole namespace, and the cursor of the next page.

        ``after`` is a cursor, or empty. Children are sorted by id; all entities come in an order
        that the store chooses and keeps. They include ids that were never created but have
        buckets, with an empty ``created_at``.
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

        None if there is no such entity. A no-op is not logged.
        """

    async def delete(
        self, namespace_id: str, entity_id: str, now_ms: int, principal: str | None
    ) -> bool:
        """Delete an entity with its limits and buckets; usage and audit events stay.

        False if there is no such entity.
        """


class NamespaceStore(Protocol):
    """The registry of namespaces. Each change and its audit event are one transaction."""

    async def register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None = None
    ) -> dict[str, str]:
        """Return ids by name, and create missing namespaces; idempotent, even if callers race."""

    async def find(self, name: str) -> Namespace | None:
        """Return an active namespace; None if there is none."""

    async def all(self) -> list[Namespace]:
        """Return the namespaces in any state, sorted by name."""

    async def soft_delete(self, name: str, now_ms: int, principal: str | None = None) -> str:
        """Free the name, keep the data, and return the id."""

    async def recover(self, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
        """Undo a soft delete and return the name; raise NamespaceStateError if it is in use."""

    async def begin_purge(self, namespace_id: str) -> int:
        """Mark a namespace as being purged; raise NamespaceStateError unless it is deleted.

        It returns the number of rows that this purge has deleted already.
        """

    async def purge_batch(self, namespace_id: str, limit: int) -> int:
        """Delete up to ``limit`` rows of data and return their number; 0 if there are no more."""

    async def finish_purge(
        self, namespace_id: str, now_ms: int, principal: str | None = None
    ) -> None:
        """Delete the registry entry of a namespace that is being purged."""


class UsageStore(Protocol):
    """Usage by the hour; every net token is counted exactly once.

    Acquires that were rejected or have waited are counted by ``BucketStore.count``.
    """

    async def read(
        self, namespace_id: str, entity_id: str | None, resource: str | None, report: UsageReport
    ) -> None:
        """Add the hours of the report's query to it, in order of days, until it needs no more.

        They are those of an entity, of a resource, or of both; with neither, of the whole
        namespace. The hours of one bucket and hour come in a row.
        """


class AuditLog(Protocol):
    """Audit events. The stores above write theirs in the transaction of the change."""

    async def record(
        self,
        namespace_id: str,
        change: AuditedChange,
        action: AuditAction,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Write an event that reports no change of the store."""

    async def events(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        """Return events older than ``before_event_id``, newest first.

        If ``entity_id`` is None, the events of all subjects are returned.
        """


class DocumentStore(Protocol):
    """Small JSON documents by key, such as the version record and the provisioner's state."""

    async def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        """Return a document; None if there is none."""

    async def put(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        """Write a document, and replace the stored one with the same key."""

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
        None means that there is no stored document, or one without a revision. ``guard`` names
        another document and the revision that it must have.
        """


class Engine(Protocol):
    """An engine, with one port for each topic."""

    @property
    def capabilities(self) -> BackendCapabilities: ...
    @property
    def request_timeout(self) -> float | None:
        """The seconds that one acquire may take with all its calls; None if it never waits."""

    @property
    def answered_s(self) -> float | None:
        """The moment of the store's last answer, of any kind, on the monotonic clock.

        None if the engine does not note it. Then every decided charge is an answer of the store.
        """

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
        """Return counts of the requests of this client so far."""

    async def ping(self) -> None:
        """Return if the store answers; raise an error that says what is wrong otherwise."""

    async def probe(self) -> None:
        """Do so as well if the store would take a write; the circuit breaker asks this."""

    async def close(self) -> None:
        """Finish calls under way and release all connections. It may be called twice."""

    async def delete_all(self) -> None:
        """Delete all data of all namespaces in the store."""
