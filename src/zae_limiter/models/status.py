"""The comparison of a request with the limits in force."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from zae_limiter.models.limit import Limit

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

HeaderStyle = Literal["ietf", "x-ratelimit", "openai"]


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """One limit compared with one request, in whole tokens; ``available`` is negative in debt.

    Amounts of a budget are Decimal, in currency units. A quota has its window, the amount that was
    ``used`` in it, and the amount ``held`` by calls in flight; other limits have None there. A
    quota or a soft limit in debt is ``overdrawn``.

    ``paused_seconds`` is the remaining time of a pause of the bucket, 0 if there is none. While the
    bucket is paused, all its limits are exceeded.

    ``mode`` is the mode of the bucket, which ends at ``mode_until``, or never if that is None. In
    mode ``deny`` all its limits are exceeded. In modes ``shadow`` and ``bypass`` none is, except
    during a pause; a limit that shadow mode has taken below zero is ``overdrawn``.
    """

    entity_id: str
    resource: str
    limit_name: str
    limit: Limit
    available: int | Decimal
    requested: int | Decimal
    exceeded: bool
    retry_after_seconds: float
    paused_seconds: float = 0.0
    used: int | Decimal | None = None
    held: int | Decimal | None = None
    window_start: datetime | None = None
    window_end: datetime | None = None
    overdrawn: bool = False
    mode: str = "enforce"
    mode_until: datetime | None = None

    @property
    def deficit(self) -> int | Decimal:
        """The tokens that the request lacks."""
        return max(0, self.requested - self.available)

    @property
    def is_denied(self) -> bool:
        """Whether mode deny rejects every call."""
        return self.mode == "deny"

    @property
    def is_stopped(self) -> bool:
        """Whether a pause or mode deny rejects every call."""
        return self.is_denied or self.paused_seconds > 0

    def as_dict(self) -> dict[str, Any]:
        """Return values for strict JSON; an infinite wait is None."""
        never = math.isinf(self.retry_after_seconds)
        of_slots = {"lease_ttl": self.limit.lease_ttl} if self.limit.is_concurrent else {}
        of_pause = {"paused_seconds": self.paused_seconds} if self.paused_seconds else {}
        of_mode: dict[str, Any] = {}
        if self.mode != "enforce":
            until = self.mode_until
            of_mode = {"mode": self.mode, "mode_until": until and until.isoformat()}
            if self.mode == "shadow":
                of_mode["overdrawn"] = self.overdrawn
        return {
            "entity_id": self.entity_id,
            "resource": self.resource,
            "limit_name": self.limit_name,
            "capacity": self._plain(self.limit.amount),
            "refill_amount": self._plain(self.limit.amount)
            if self.limit.is_quota
            else self.limit.refill_amount,
            "refill_period_seconds": self.limit.refill_period_seconds,
            **of_slots,
            **self._window_dict(),
            "available": self._plain(self.available),
            "requested": self._plain(self.requested),
            "exceeded": self.exceeded,
            "can_ever_fit": not never,
            "retry_after_seconds": None if never else self.retry_after_seconds,
            **of_pause,
            **of_mode,
        }

    def window_text(self) -> str:
        """Return a sentence about a quota: the rest of its window, and when the next one begins."""
        from zae_limiter.models.window_text import describe_window  # few programs need it

        return describe_window(self)

    def _window_dict(self) -> dict[str, Any]:
        """Return the fields of a quota, or those of a soft limit."""
        if not self.limit.is_quota:
            return {"overdrawn": self.overdrawn} if self.limit.soft else {}
        start, end = self.window_start, self.window_end
        return {
            "limit": str(self.limit),
            "used": self._plain(self.used),
            "held": self._plain(self.held),
            "window_start": None if start is None else start.isoformat(),
            "window_end": None if end is None else end.isoformat(),
            "overdrawn": self.overdrawn,
        }

    def _plain(self, amount: int | Decimal | None) -> int | str | None:
        """Return an amount as a JSON value: money is a text."""
        return amount if amount is None or type(amount) is int else f"{amount:f}"


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


def least_available(statuses: Iterable[LimitStatus]) -> dict[str, int | Decimal]:
    """Return the remaining tokens by limit: the smaller number of an entity and its parent."""
    left: dict[str, int | Decimal] = {}
    for status in statuses:
        name, available = status.limit_name, status.available
        left[name] = min(available, left.get(name, available))
    return left
