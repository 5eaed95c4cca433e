"""The search for the best number of users of a worker. Pure: steps are measured elsewhere.

With more users a worker does more at once, until the worker, the store or the network is fully
used; from then on, more users only wait for each other. So the best number is the largest
whose latency is still near that of a user alone. It is found by doubling, then by halving the
interval between the largest number that was good and the smallest that was not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

SLOWER = 2.0  # times the latency of one user alone: half of the time is then waiting for others
CLOSE_ENOUGH = 0.1  # of the number: measurements differ by more
MIN_LATENCY_MS = 1.0  # a faster user alone says nothing about a queue


@dataclass(frozen=True, slots=True)
class TuneStep:
    """One number of users, measured for a while."""

    users: int
    per_second: float
    p50_ms: float
    p95_ms: float
    failures: int = 0
    good: bool = False


@dataclass(slots=True)
class UserSearch:
    """Asks for steps until it knows the best number of users, at most ``most``.

    A step is good if nothing failed in it and its p95 is at most ``max_latency_ms``; by default,
    twice that of one user alone.
    """

    most: int
    max_latency_ms: float | None = None
    steps: list[TuneStep] = field(default_factory=list)

    def next_users(self) -> int | None:
        """Return the number to measure next; None once it is known."""
        if not self.steps:
            return 1
        low, high = self.best_users, self._smallest_bad()
        if high is None:
            return None if low >= self.most else min(self.most, max(2 * low, 1))
        if low == 0 or high - low <= max(1, round(low * CLOSE_ENOUGH)):
            return None
        return (low + high) // 2

    def record(self, step: TuneStep) -> TuneStep:
        """Add a measured step; return it, judged."""
        if self.max_latency_ms is None:
            self.max_latency_ms = SLOWER * max(step.p95_ms, MIN_LATENCY_MS)
        good = not step.failures and step.p95_ms <= self.max_latency_ms
        judged = replace(step, good=good)
        self.steps.append(judged)
        return judged

    @property
    def best_users(self) -> int:
        """The largest number that was good; 0 if not even one user was."""
        return max((step.users for step in self.steps if step.good), default=0)

    def _smallest_bad(self) -> int | None:
        return min((step.users for step in self.steps if not step.good), default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return strict JSON; fields may be added, none changes its meaning."""
        best = next((step for step in self.steps if step.users == self.best_users), None)
        return {
            "best_users": self.best_users,
            "per_second": None if best is None else round(best.per_second, 1),
            "max_latency_ms": self.max_latency_ms,
            "steps": [asdict(step) for step in sorted(self.steps, key=lambda step: step.users)],
        }
