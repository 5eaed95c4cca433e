"""A token bucket in exact fractions, with which real buckets are compared."""

from __future__ import annotations

from fractions import Fraction

from zae_limiter.models.limit import Limit


class IdealBucket:
    """A bucket with one limit, which begins full."""

    def __init__(self, limit: Limit, now_ms: int) -> None:
        self._capacity = Fraction(limit.capacity)
        self._per_ms = Fraction(limit.refill_amount, limit.refill_period_ms)
        self._level = self._capacity
        self._at_ms = now_ms

    def level(self, now_ms: int) -> Fraction:
        accrued = (now_ms - self._at_ms) * self._per_ms
        return min(self._capacity, self._level + accrued)

    def take(self, amount: int, now_ms: int) -> None:
        """Take an amount whether or not it is there; a negative amount is given back."""
        self._level = min(self._capacity, self.level(now_ms) - amount)
        self._at_ms = now_ms
