"""How a request compares with the limits in force."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from zae_limiter.models.limit import Limit

HeaderStyle = Literal["ietf", "x-ratelimit", "openai"]


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """One limit compared with one request, in whole tokens; ``available`` is negative in debt.

    ``paused_seconds`` is for how long the bucket is still paused: until then every limit of it is
    exceeded, whatever it holds.
    """

    entity_id: str
    resource: str
    limit_name: str
    limit: Limit
    available: int
    requested: int
    exceeded: bool
    retry_after_seconds: float
    paused_seconds: float = 0.0

    @property
    def deficit(self) -> int:
        """Tokens missing for the request."""
        return max(0, self.requested - self.available)

    def as_dict(self) -> dict[str, Any]:
        """Return strict JSON; an infinite wait is null."""
        never = math.isinf(self.retry_after_seconds)
        of_slots = {"lease_ttl": self.limit.lease_ttl} if self.limit.is_concurrent else {}
        of_pause = {"paused_seconds": self.paused_seconds} if self.paused_seconds else {}
        return {
            "entity_id": self.entity_id,
            "resource": self.resource,
            "limit_name": self.limit_name,
            "capacity": self.limit.capacity,
            "refill_amount": self.limit.refill_amount,
            "refill_period_seconds": self.limit.refill_period_seconds,
            **of_slots,
            "available": self.available,
            "requested": self.requested,
            "exceeded": self.exceeded,
            "can_ever_fit": not never,
            "retry_after_seconds": None if never else self.retry_after_seconds,
            **of_pause,
        }


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a request would be admitted now, by which limits not, and when it would be."""

    available: bool
    statuses: tuple[LimitStatus, ...]
    retry_after_seconds: float

    def __bool__(self) -> bool:
        return self.available
