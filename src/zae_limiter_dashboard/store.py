"""The store behind the page: one repository per namespace, opened on demand and after outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from zae_limiter.exceptions import NamespaceNotFoundError, ValidationError, ZAELimiterError
from zae_limiter.models.audit import SYSTEM_SUBJECT, AuditEvent, namespace_subject, resource_subject
from zae_limiter_dashboard.board import Board
from zae_limiter_dashboard.board_keeper import BoardKeeper
from zae_limiter_dashboard.history import History
from zae_limiter_ops.views.modes import ModeView

if TYPE_CHECKING:
    from zae_limiter import SyncRepository
    from zae_limiter.models.config import ConfigSource
    from zae_limiter.models.entity import Entity, Namespace
    from zae_limiter.models.limit import Limit
    from zae_limiter_ops.views.limit_view import LimitView

K = TypeVar("K")
V = TypeVar("V")

MAX_NAMESPACES = 8  # boards in memory; the one that was used longest ago goes first
RECENT_CHANGES = 12
MAX_SUBJECTS = 20  # resources, and listed entities, whose changes are read on DynamoDB
READ_UNITS_PER_SUBJECT = 1.0  # the newest changes of a subject, read consistently, up to 4 kB
READ_UNITS_PER_SOURCE = 4.0  # an entity, its bucket and its two levels of limits
READ_UNITS_PER_CHECK = 1.0  # the registration of the namespace
REFRESH_S = 2.0  # the page asks for a refresh so often
MEMORY_S, MEMORY_WITH_UNITS_S = 5.0, 60.0  # of entities, resources and the sources of limits
CHECK_S, CHECK_WITH_UNITS_S = 2.0, 10.0  # between two looks whether the namespace is still there
MAX_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Health:
    """What a ping of the store has shown."""

    engine: str
    place: str
    latency_ms: float
    clock_offset_ms: int  # the store's time minus this machine's
    breaker_open: bool
    breaker_openings: int
    at_ms: int


class ShownChanges(NamedTuple):
    """The newest audit events. If ``subjects`` is a number, only so many subjects were read.

    The subjects are the system, the namespace, resources, and entities that the overview lists.
    """

    events: tuple[AuditEvent, ...] = ()
    subjects: int | None = None


class BucketSettings(NamedTuple):
    """The limits in force of a bucket, their configuration level, and its mode."""

    limits: tuple[Limit, ...]
    source: ConfigSource | None
    mode: ModeView


@dataclass(slots=True)
class Watched:
    """One namespace that somebody looks at."""

    repository: SyncRepository
    keeper: BoardKeeper
    history: History
    health: Health | None = None
    changes: ShownChanges = field(default_factory=ShownChanges)
    checked_at: float = 0.0
    _entities: dict[str, tuple[float, Entity | None]] = field(default_factory=dict)
    _resources: dict[str, tuple[float, list[str]]] = field(default_factory=dict)
    _settings: dict[tuple[str, str], tuple[float, BucketSettings]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.repository.namespace_name

    def entity(self, entity_id: str) -> Entity | None:
        """Return an entity that was read a moment ago at most."""
        return self._remembered(self._entities, entity_id, self.repository.get_entity)

    def resources(self) -> list[str]:
        """Return the names of all resources, which were read a moment ago at most."""
        return self._remembered(self._resources, "", lambda _: self.repository.list_resources())

    @property
    def check_s(self) -> float:
        """The time between two looks whether the namespace is still registered."""
        return CHECK_S if self.keeper.refresh_units is None else CHECK_WITH_UNITS_S

    def settings(self, entity_id: str, resource: str) -> BucketSettings:
        """Return the limits in force, their level, and the mode, as they were a moment ago."""
        return self._remembered(self._settings, (entity_id, resource), self._read_settings)

    def _read_settings(self, bucket: tuple[str, str]) -> BucketSettings:
        limits, _, source = self.repository.resolve_limits(*bucket)
        return BucketSettings(tuple(limits or ()), source, ModeView.of(self.repository, *bucket))

    def limits_in_force(self, entity_id: str, resource: str) -> tuple[Limit, ...]:
        """Return the limits in force of a bucket that is shown, as they were a moment ago."""
        return self.settings(entity_id, resource).limits

    def with_modes(self, rows: Iterable[LimitView]) -> list[LimitView]:
        """Return rows that are to be shown, with the modes of their buckets."""
        return [row._replace(mode=self.settings(*row.bucket).mode) for row in rows]

    def _remembered(self, memory: dict[K, tuple[float, V]], key: K, read: Callable[[K], V]) -> V:
        now = time.monotonic()
        costs_units = self.keeper.refresh_units is not None
        found = memory.get(key)
        if found is None or now - found[0] > (MEMORY_WITH_UNITS_S if costs_units else MEMORY_S):
            if len(memory) > MAX_REMEMBERED:
                memory.clear()
            found = memory[key] = now, read(key)
        return found[1]

    def entity_or_none(self, entity_id: str) -> Entity | None:
        """Return an entity; None also if no entity can have this id."""
        try:
            return self.entity(entity_id)
        except ValidationError:
            return None

    def forget(self, entity_id: str) -> None:
        """Read an entity and the sources of limits again: they were changed here."""
        self._entities.pop(entity_id, None)
        self._settings.clear()
        self._resources.clear()


class Stores:
    """Opens namespaces of one store, and opens them again after a failure."""

    def __init__(self, open_store: Callable[[], SyncRepository]) -> None:
        self._open = open_store
        self._lock = threading.Lock()
        self._registry: SyncRepository | None = None
        # The error of the last opening, and until when it answers for the next one.
        self._failure: tuple[float, ZAELimiterError] | None = None
        self._watched: dict[str, Watched] = {}

    def registry(self) -> SyncRepository:
        """Return the repository that lists namespaces; open the store if that failed before.

        A failure answers the requests that queue behind it, and others for as long as it took.
        """
        with self._lock:
            if self._registry is None:
                began = time.monotonic()
                if self._failure is not None and began < self._failure[0]:
                    raise self._failure[1].copy()
                try:
                    self._registry = self._open()
                except ZAELimiterError as error:
                    ended = time.monotonic()
                    self._failure = ended + (ended - began), error
                    raise
            return self._registry

    def namespaces(self) -> list[Namespace]:
        """Return all namespaces, deleted ones included."""
        registry = self.registry()
        return [*registry.list_namespaces(), *registry.list_orphan_namespaces()]

    def watch(self, namespace: str) -> Watched:
        """Return a namespace; raise NamespaceNotFoundError if it is not registered (any more)."""
        registry = self.registry()
        with self._lock:
            watched = self._watched.get(namespace)
        now = time.monotonic()
        if watched is None or now - watched.checked_at > watched.check_s:
            # A namespace that was deleted, or registered again, has another id or none.
            try:
                found = registry.get_namespace(namespace)
            except NamespaceNotFoundError:
                self._drop(namespace)
                raise
            if watched is not None and watched.repository.namespace_id == found.namespace_id:
                watched.checked_at = now
                return watched
            self._drop(namespace)
            watched = self._add(namespace)
        return watched

    def _add(self, namespace: str) -> Watched:
        repository = self.registry().namespace(namespace)
        costs_units = repository.capabilities.engine == "dynamodb"
        keeper = BoardKeeper(
            lambda: repository,
            costs_units=costs_units,
            on_renewed=lambda repo, board: _look_around(watched, repo, board),
        )
        watched = Watched(
            repository, keeper, History(repository, costs_units), checked_at=time.monotonic()
        )
        with self._lock:
            self._watched[namespace] = watched
            extra = list(self._watched)[:-MAX_NAMESPACES]
        for name in extra:
            self._drop(name)
        return watched

    def _drop(self, namespace: str) -> None:
        with self._lock:
            watched = self._watched.pop(namespace, None)
        if watched is not None:
            watched.keeper.close()
            watched.history.close()

    def close(self) -> None:
        """End all threads and close the store."""
        for name in list(self._watched):
            self._drop(name)
        if self._registry is not None:
            self._registry.close()


def _look_around(watched: Watched, repository: SyncRepository, board: Board) -> None:
    """Read what the overview shows besides buckets, at most as often as the listing."""
    watched.health = measure_health(repository)
    watched.changes = recent_changes(repository, board)
    watched.history.renew(board.buckets)


def measure_health(repository: SyncRepository) -> Health:
    """Ping the store, and compare its time with this machine's."""
    started = time.perf_counter()
    repository.ping()
    latency_ms = (time.perf_counter() - started) * 1000
    stats = repository.get_stats()
    now_ms = repository.charging.clock()
    return Health(
        engine=repository.capabilities.engine,
        place=repository.stack_name,
        latency_ms=latency_ms,
        clock_offset_ms=now_ms - int(time.time() * 1000),
        breaker_open=stats.breaker_open,
        breaker_openings=stats.breaker_openings,
        at_ms=now_ms,
    )


def recent_changes(repository: SyncRepository, board: Board) -> ShownChanges:
    """Return the newest audit events of a namespace.

    On DynamoDB no index sorts all of them by time, and an index would make every change dearer. So
    only the changes of defaults, of the namespace and of entities that the overview lists are read
    there, and the page says so.
    """
    if repository.capabilities.engine != "dynamodb":
        return ShownChanges(tuple(repository.get_audit_events(limit=RECENT_CHANGES)))
    listed = dict.fromkeys(row.entity_id for row in board.selection.rows)
    entities = list(listed)[:MAX_SUBJECTS]
    subjects = [
        SYSTEM_SUBJECT,
        namespace_subject(repository.namespace_name),
        *(resource_subject(name) for name in repository.list_resources()[:MAX_SUBJECTS]),
        *entities,
    ]
    events = [
        event
        for subject in subjects
        for event in repository.get_audit_events(subject, limit=RECENT_CHANGES)
    ]
    events.sort(key=lambda event: event.event_id, reverse=True)
    return ShownChanges(tuple(events[:RECENT_CHANGES]), len(subjects))
