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
    ``lost_refunds`` could not be given back to one side of a cascade when the other refused.
    An embedded engine makes no calls and counts nothing here.
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

    @property
    def writes_per_charge(self) -> float:
        """How many writes a charge took on average; below 1 where callers share them."""
        return self.writes / self.charges if self.charges else 0.0

    @property
    def round_trips_per_granted(self) -> float:
        """How many writes were tried for each granted charge or settlement."""
        done = self.granted + self.settlements
        return self.writes / done if done else 0.0
