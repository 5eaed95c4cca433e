"""What a client has done so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts since the repository was opened; scoped repositories share them.

    ``calls`` are requests to the store, ``retries`` those that repeat one. ``writes`` are requests
    to change a bucket, ``refused_writes`` those that found it other than expected;
    ``plain_moves`` and ``clamp_moves`` say how limits were guessed to stand. ``charges`` and
    ``settlements`` are what callers asked for; together with others they are ``grouped``.
    ``unknown_writes`` were not answered, and nobody knows whether they were carried out.
    ``lost_refunds`` could not be given back to one side of a cascade when the other refused.
    ``splits`` and ``merges`` are changes of a busy bucket's shape, ``gathers`` writes that
    took from several of its parts. An embedded engine makes no calls and counts nothing here.
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
    plain_moves: int = 0
    clamp_moves: int = 0
    groups: int = 0
    grouped: int = 0
    largest_group: int = 0
    lost_refunds: int = 0
    splits: int = 0
    merges: int = 0
    gathers: int = 0

    @property
    def writes_per_charge(self) -> float:
        """What a charge costs with all that follows it; below 1 where callers share writes."""
        return self.writes / self.charges if self.charges else 0.0

    @property
    def round_trips_per_granted(self) -> float:
        """How often the store was asked for each thing done: 1 is best for a caller alone.

        Writes for charges that were rejected in the end count, too.
        """
        done = self.granted + self.settlements
        return self.writes / done if done else 0.0
