"""A bucket as users see it: one limit of one entity on one resource, at one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.models.timestamps import MILLI

# A pause ends by itself soon, if it is forgotten or if a provider has asked for it by mistake.
MAX_PAUSE_S = 600


def check_pause(seconds: object) -> float:
    """Return the length of a pause; raise ValidationError if it is out of range."""
    is_number = type(seconds) in (int, float)
    if not is_number or not 0 <= seconds <= MAX_PAUSE_S:  # type: ignore[operator]
        raise ValidationError(
            "seconds",
            seconds,
            f"must be a number from 0, which lifts a pause, to {MAX_PAUSE_S}; pause again before "
            "it ends if that is not enough",
        )
    return seconds  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class BucketState:
    """One limit of a bucket at the moment ``last_refill_ms``, at which it was read.

    ``tokens_milli`` is its level at that moment. ``rejected`` counts the acquires that the bucket
    rejected in the running hour; it is approximate. ``paused_until_ms`` is the end of a pause in
    epoch milliseconds; None if the bucket is not paused. ``asked`` is the largest amount of this
    limit that was rejected in the running hour, in whole tokens. ``slots_expire_ms`` is the moment
    at which the first of the held slots expires unless it is renewed; None without held slots.
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
    paused_until_ms: int | None = None
    asked: int = 0
    slots_expire_ms: int | None = None

    @property
    def tokens(self) -> int:
        """Whole tokens available; negative while in debt."""
        return self.tokens_milli // MILLI

    @property
    def capacity(self) -> int:
        """The capacity in whole tokens."""
        return self.capacity_milli // MILLI

    @property
    def limit(self) -> Limit:
        """The limit with the parameters of this bucket."""
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


class BucketEntry(NamedTuple):
    """A bucket of a listing, which is decoded only if it is asked for.

    Entries of a bucket with the same ``revision`` have the same content. If the store cannot tell,
    the revision is None. ``states`` decodes the content and returns one state per limit, with its
    level at a moment in epoch milliseconds.
    """

    entity_id: str
    resource: str
    revision: int | None
    states: Callable[[int], list[BucketState]]


@dataclass(frozen=True, slots=True)
class EntityCapacity:
    """One limit of one entity on a resource, in whole tokens."""

    entity_id: str
    capacity: int
    available: int
    utilization_pct: float


@dataclass(frozen=True, slots=True)
class ResourceCapacity:
    """One limit of a resource, summed over the entities that have a bucket there.

    Each entity counts once: with its configured limit, or with the limit of its calls if only calls
    with limits of their own have used the bucket.
    """

    resource: str
    limit_name: str
    total_capacity: int
    total_available: int
    utilization_pct: float
    entities: list[EntityCapacity]
