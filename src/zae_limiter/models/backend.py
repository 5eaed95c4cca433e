"""The capabilities of an engine, and counts of a client's requests to its store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class BackendCapabilities:
    """The capabilities of an engine, as the engine declares them.

    ``atomic_cascade`` says that entity and parent are charged in one transaction.
    ``infrastructure`` says that the store has a table or stack that can be created and deleted.
    """

    engine: str
    durable: bool
    shared_between_processes: bool
    atomic_cascade: bool
    usage_history: bool
    infrastructure: bool = False


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts since the repository was opened; scoped repositories share them.

    ``calls`` are requests to the store, and ``retries`` are the calls that repeat another one.
    ``writes`` are requests to change a bucket, and ``refused_writes`` are the writes whose
    condition failed. ``plain_moves`` and ``clamp_moves`` count the limits that were written by a
    plain move or by a clamp. ``charges`` and ``settlements`` are the requests of callers;
    ``grouped`` of them shared a write with others, in ``groups`` writes.

    ``unknown_writes`` got no answer, so it is unknown whether they were made. ``repeated_writes``
    were sent again because the server had closed the connection; at worst each of them is charged
    twice. ``lost_refunds`` could not be given back: to one side of a cascade after the other side
    refused, or to other shards after one shard had no room. ``splits`` and ``merges`` count splits
    and merges of shards, and ``gathers`` are charges that were taken from several shards.

    For an embedded engine, a call is the transaction of a charge or settlement, and a write is a
    transaction that was granted. Counts about requests to a server stay 0.

    ``breaker_open`` says that the store is down and calls do not wait for it. The breaker has
    opened ``breaker_openings`` times and answered ``breaker_answers`` calls in place of the store.
    """

    calls: int = 0
    retries: int = 0
    charges: int = 0
    granted: int = 0
    rejected: int = 0
    cached_rejections: int = 0
    settlements: int = 0
    writes: int = 0
    refused_writes: int = 0
    unknown_writes: int = 0
    repeated_writes: int = 0
    plain_moves: int = 0
    clamp_moves: int = 0
    groups: int = 0
    grouped: int = 0
    largest_group: int = 0
    lost_refunds: int = 0
    splits: int = 0
    merges: int = 0
    gathers: int = 0
    breaker_open: bool = False
    breaker_openings: int = 0
    breaker_answers: int = 0

    @property
    def writes_per_charge(self) -> float:
        """Writes (settlements included) per charge; below 1 if callers share writes."""
        return self.writes / self.charges if self.charges else 0.0

    @property
    def round_trips_per_granted(self) -> float:
        """Writes per granted charge or settlement; at best 1 if no callers share writes.

        Writes of charges that were rejected in the end count as well.
        """
        done = self.granted + self.settlements
        return self.writes / done if done else 0.0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters of the configuration cache."""

    hits: int
    misses: int
    size: int
    ttl_seconds: float


class MigrationProgress(NamedTuple):
    """The progress of a migration: the items that it has read, and its changes.

    In a dry run, ``changed`` counts the changes that a migration would make.
    """

    migration: str
    read: int
    changed: int

    def plus(self, later: MigrationProgress) -> MigrationProgress:
        """Return the sum of this and a later part of the same migration."""
        return self._replace(read=self.read + later.read, changed=self.changed + later.changed)


class MigrationReport(NamedTuple):
    """The result of a migration; if both versions are the same, there was nothing to do."""

    from_version: int
    to_version: int
    read: int
    changed: int
    dry_run: bool
