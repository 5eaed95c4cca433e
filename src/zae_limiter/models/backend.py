"""What a store can do, and what a client has asked of it so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class BackendCapabilities:
    """What an engine can do, declared by the engine instead of found out by trying.

    ``atomic_cascade``: entity and parent are charged in one transaction. ``infrastructure``: the
    store has a table or stack that can be created and deleted.
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

    ``calls`` are requests to the store, ``retries`` those that repeat one. ``writes`` are requests
    to change a bucket, ``refused_writes`` those whose condition failed; ``plain_moves`` and
    ``clamp_moves`` count the limits written in either form. ``charges`` and ``settlements`` are
    what callers asked for; ``grouped`` of them shared a write with others, in ``groups`` writes.
    ``unknown_writes`` got no answer, so that it is unknown whether they were made.
    ``repeated_writes`` were sent again because the server had closed the connection; at worst
    each of them is charged twice. ``lost_refunds`` could not be given back: to one side of a
    cascade when the other refused, or to other shards what one shard had no room for.
    ``splits`` and ``merges`` are those of shards, ``gathers`` are charges taken from several
    shards. For an embedded engine a call is a transaction of a charge or settlement, and a write
    one that was granted; what concerns requests to a server stays 0.

    ``breaker_open`` says that the store is down and calls do not wait for it; the breaker has
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
        """Writes for each charge, settlements included; below 1 where callers share writes."""
        return self.writes / self.charges if self.charges else 0.0

    @property
    def round_trips_per_granted(self) -> float:
        """Writes for each granted charge or settlement: 1 at best where every caller is alone.

        Writes of charges that were rejected in the end count, too.
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
    """How far a migration has come: items read, and changes made or, in a dry run, needed."""

    migration: str
    read: int
    changed: int

    def plus(self, later: MigrationProgress) -> MigrationProgress:
        """Return the sum of this and a later part of the same migration."""
        return self._replace(read=self.read + later.read, changed=self.changed + later.changed)


class MigrationReport(NamedTuple):
    """What a migration has done; the same version twice means that there was nothing to do."""

    from_version: int
    to_version: int
    read: int
    changed: int
    dry_run: bool
