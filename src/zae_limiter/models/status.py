"""The comparison of a request with the limits in force."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from zae_limiter.models.limit import Limit

HeaderStyle = Literal["ietf", "x-ratelimit", "openai"]


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """One limit compared with one request, in whole tokens; ``available`` is negative in debt.

    ``paused_seconds`` is the remaining time of a pause of the bucket, 0 if there is none. While the
    bucket is paused, all its limits are exceeded.
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
        """The tokens that the request lacks."""
        return max(0, self.requested - self.available)

    def as_dict(self) -> dict[str, Any]:
        """Return values for strict JSON; an infinite wait is None."""
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
    """The answer whether a request would be admitted now.

    ``statuses`` compare the request with each limit, and ``retry_after_seconds`` is the time after
    which it would be admitted.
    """

    available: bool
    statuses: tuple[LimitStatus, ...]
    retry_after_seconds: float

    def __bool__(self) -> bool:
        return self.available
