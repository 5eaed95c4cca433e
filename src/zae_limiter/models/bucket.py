"""A bucket as users see it: one limit of one entity on one resource, at one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.models.timestamps import MILLI

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from zae_limiter.refusal import LimitedBy

BILLIONTHS = 10**9  # of a currency unit; as in models.money, which needs decimal

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
    limit that was rejected in the running hour, as users write amounts. ``holds_expire_ms`` is the
    moment at which the first of the held slots, or held amounts of a quota, expires unless it is
    renewed; None without any, and for amounts that are held until their window ends. ``terms`` is
    the limit itself if it is a quota or soft; the levels of a budget are in billionths of the
    currency unit. A quota has its window, the amount ``used`` in it and the amount ``held`` by
    calls in flight. ``raised`` is its highest threshold, in percent, that was raised in the window;
    None if none was. ``limited_by`` is what refused the last acquire that the bucket has counted as
    rejected in the running hour, at ``limited_at_ms``; None without one.
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
    asked: int | Decimal = 0
    holds_expire_ms: int | None = None
    terms: Limit | None = None
    used: int | Decimal | None = None
    held: int | Decimal | None = None
    window_start: datetime | None = None
    window_end: datetime | None = None
    raised: int | None = None
    limited_by: LimitedBy | None = None
    limited_at_ms: int | None = None

    @property
    def tokens(self) -> int:
        """Whole tokens available; negative while in debt. A budget counts whole currency units."""
        return self.tokens_milli // self._unit

    @property
    def capacity(self) -> int:
        """The capacity in whole tokens, or in whole currency units of a budget."""
        return self.capacity_milli // self._unit

    @property
    def available(self) -> int | Decimal:
        """The level as users write amounts: whole tokens, or currency units of a budget."""
        return self.tokens if self.terms is None else self.terms.shown(self.tokens_milli)

    @property
    def overdrawn(self) -> bool:
        """Whether the level of a quota or soft limit is below zero."""
        return self.terms is not None and self.tokens_milli < 0

    @property
    def _unit(self) -> int:
        return MILLI if self.terms is None or self.terms.currency is None else BILLIONTHS

    @property
    def limit(self) -> Limit:
        """The limit with the parameters of this bucket."""
        if self.terms is not None:
            return self.terms
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
    level at a moment in epoch milliseconds. It raises IncompatibleSchemaError for a bucket in a
    form that this version cannot read.
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
