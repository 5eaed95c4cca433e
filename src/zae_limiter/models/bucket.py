"""A bucket as users see it: one limit of one entity on one resource, at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from zae_limiter.models.limit import Limit
from zae_limiter.models.timestamps import MILLI


@dataclass(frozen=True, slots=True)
class BucketState:
    """One limit of a bucket; ``tokens_milli`` is its level at ``last_refill_ms``, when read.

    ``rejected`` counts acquires that the bucket rejected in the running hour; it is approximate.
    """

    entity_id: str
    resource: str
    limit_name: str
    tokens_milli: int
    last_refill_ms: int
    capacity_milli: int
    refill_amount_milli: int
    refill_period_ms: int
    total_consumed_milli: int | None = None
    rejected: int = 0

    @property
    def tokens(self) -> int:
        """Whole tokens available; negative while in debt."""
        return self.tokens_milli // MILLI

    @property
    def capacity(self) -> int:
        return self.capacity_milli // MILLI

    @property
    def limit(self) -> Limit:
        return Limit.from_stored(
            self.limit_name,
            self.capacity_milli // MILLI,
            self.refill_amount_milli // MILLI,
            self.refill_period_ms // 1000,
        )

    @classmethod
    def from_limit(cls, entity_id: str, resource: str, limit: Limit, now_ms: int) -> BucketState:
        """Return a full bucket."""
        return cls(
            entity_id,
            resource,
            limit.name,
            limit.capacity_milli,
            now_ms,
            limit.capacity_milli,
            limit.refill_amount_milli,
            limit.refill_period_ms,
            0,
        )


@dataclass(frozen=True, slots=True)
class EntityCapacity:
    """One limit of one entity on a resource, in whole tokens."""

    entity_id: str
    capacity: int
    available: int
    utilization_pct: float


@dataclass(frozen=True, slots=True)
class ResourceCapacity:
    """One limit of a resource, summed over the entities that have a bucket there."""

    resource: str
    limit_name: str
    total_capacity: int
    total_available: int
    utilization_pct: float
    entities: list[EntityCapacity]
