"""The limits of our own subjects, which fill within 5 seconds, and their terms for the checker."""

from __future__ import annotations

from typing import Any, NamedTuple

from proof.harness.plan import DYNAMODB, HOLD_TTL_S, Plan
from zae_limiter import Limit

RESOURCE = "api"
SECOND_NS = 1_000_000_000
WAIT_S = 0.4  # the longest that a caller waits for capacity
NANO = 1_000_000_000  # billionths in a unit of currency
BUDGET_USD = 200  # a run spends it in some seconds


class Bucket(NamedTuple):
    """One bucket of the workload, and whether its rejections are judged."""

    entity: str
    limits: tuple[Limit, ...]
    is_greedy: bool = True
    parent: str | None = None
    late_returns_ns: int = 0
    is_default: bool = False  # its limits are those of the system, so that it has a TTL

    def series(self, limit: str) -> str:
        return f"{self.entity}/{limit}"


def _rate(name: str, capacity: int, refill: int) -> Limit:
    return Limit.per_second(name, refill, burst=capacity)


PLAIN = [
    Bucket(f"plain-{number}", (_rate("rpm", 20, 40), _rate("tpm", 800, 400))) for number in range(3)
]
# So small that no fault splits it: half of it would not hold two calls.
NARROW = Bucket("narrow", (_rate("rpm", 3, 40),))
WAITING = Bucket(
    "waiting", (_rate("rpm", 10, 50),), is_greedy=False, late_returns_ns=int(WAIT_S * SECOND_NS)
)
PARENT = Bucket("org", (_rate("rpm", 30, 60),), is_greedy=False)
CHILDREN = [
    Bucket(f"child-{number}", (_rate("rpm", 20, 40),), is_greedy=False, parent="org")
    for number in range(2)
]
TUNED = Bucket("tuned", (_rate("rpm", 20, 40),), is_greedy=False)
TUNINGS = ((_rate("rpm", 10, 20),), (_rate("rpm", 20, 40),))
SHARDED = Bucket("sharded", (_rate("rpm", 100, 50),), is_greedy=False)
BUDGET = Bucket("budget", (Limit.budget("usd", BUDGET_USD, per="year", hold_ttl=HOLD_TTL_S),))
QUOTA = Bucket("quota", (Limit.quota("calls", 200, per="minute", hold_ttl=HOLD_TTL_S),))
# A quota of an hour that is changed to one of a day, and back: its use stays in both.
TURNINGS = [Limit.quota("turns", 300, per=per, hold_ttl=HOLD_TTL_S) for per in ("hour", "day")]
TURNED = Bucket("turned", (TURNINGS[0],))
HELD = (BUDGET, QUOTA, TURNED)  # calls hold their amounts, and settle them once
WINDOWS_S = {"calls": 60, "turns": 3600, "usd": 366 * 86_400 * 100}  # no run lives as long as usd


BRIEF = [
    Bucket(f"brief-{number}", (_rate("rpm", 20, 40),), is_default=True) for number in range(12)
]


def buckets_of(plan: Plan) -> list[Bucket]:
    """Return the buckets that the workload of a plan uses."""
    buckets = [*PLAIN, NARROW, WAITING, PARENT, *CHILDREN, TUNED, *HELD]
    if plan.subject == DYNAMODB:
        buckets.append(SHARDED)
    if plan.has_expiring_buckets:
        buckets += BRIEF
    return buckets


def terms_of(bucket: Bucket) -> list[dict[str, Any]]:
    """Return the terms of a bucket's limits, as the checker reads them."""
    return [_terms(bucket, limit) for limit in bucket.limits]


def _terms(bucket: Bucket, limit: Limit) -> dict[str, Any]:
    if limit.hold_ttl is None:
        return rate_terms(bucket, limit)
    is_budget = limit.currency is not None
    return {
        "series": bucket.series(limit.name),
        "capacity": limit.capacity,
        "window_ns": WINDOWS_S[limit.name] * SECOND_NS,
        "hold_ttl_ns": limit.hold_ttl * SECOND_NS,
    } | ({"capacity": BUDGET_USD * NANO, "unit": NANO} if is_budget else {})


def rate_terms(bucket: Bucket, limit: Limit) -> dict[str, Any]:
    return {
        "series": bucket.series(limit.name),
        "capacity": limit.capacity,
        "refill": limit.refill_amount,
        "period_ns": limit.refill_period_seconds * SECOND_NS,
        "late_returns_ns": bucket.late_returns_ns,
        "is_greedy": bucket.is_greedy,
    }
