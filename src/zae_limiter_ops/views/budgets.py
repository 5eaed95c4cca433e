"""The spending of a budget in its window: the rate so far, and the day on which it is spent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from zae_limiter.models.money import billionths_of, in_currency

if TYPE_CHECKING:
    from zae_limiter_ops.views.limit_view import LimitView

DAY_MS = 86_400_000
# In the first minutes of a window a single call would look like a flood.
SHORTEST_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget of one entity on one resource, at the moment at which it was read."""

    limit: LimitView
    namespace: str

    @property
    def currency(self) -> str:
        """The currency of all amounts."""
        assert self.limit.currency is not None, "a budget has one"
        return self.limit.currency

    @property
    def left(self) -> Decimal:
        """The rest of the window's amount; negative if it is overdrawn."""
        return Decimal(self.limit.level)

    @property
    def used(self) -> Decimal:
        """The amount that ended calls have cost in this window."""
        return Decimal(self.limit.used or "0.00")

    @property
    def held(self) -> Decimal:
        """The amount that calls in flight hold."""
        return Decimal(self.limit.held or "0.00")

    @property
    def window_start(self) -> datetime | None:
        """The beginning of the window; None if none has begun."""
        return self.limit.state.window_start

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.limit.level_milli <= 0

    @property
    def left_share(self) -> float:
        """The share of the amount that is left: 1 for an unused budget, negative in debt."""
        return self.limit.level_milli / self.limit.state.capacity_milli

    @property
    def elapsed_share(self) -> float | None:
        """The share of the window that is over; None if no window has begun."""
        start, end = self.limit.state.window_start, self.limit.state.window_end
        if start is None or end is None:
            return None
        return self._elapsed_ms(start) / max(1, _ms_between(start, end))

    @property
    def per_day(self) -> Decimal | None:
        """The average spending of a day in this window; None if no window has begun.

        Amounts that calls in flight hold count as spent.
        """
        start = self.window_start
        if start is None:
            return None
        units = billionths_of(self.used + self.held)
        return in_currency(units * DAY_MS // max(SHORTEST_MS, self._elapsed_ms(start)))

    @property
    def spent_at(self) -> datetime | None:
        """The moment at which the rest will be spent at the present rate.

        It is the moment of the read for a budget that is spent. None if the window ends before, or
        if nothing is being spent.
        """
        per_day, end = self.per_day, self.limit.window_end
        if per_day is None or end is None:
            return None
        now = end - timedelta(milliseconds=self._left_ms(end))
        if self.is_spent:
            return now
        if not per_day:
            return None
        wait_ms = -(-self.limit.level_milli * DAY_MS // billionths_of(per_day))
        # Compared as numbers: a moment thousands of years away is no date.
        return None if wait_ms >= self._left_ms(end) else now + timedelta(milliseconds=wait_ms)

    def _elapsed_ms(self, start: datetime) -> int:
        return max(0, self.limit.now_ms - int(start.timestamp() * 1000))

    def _left_ms(self, end: datetime) -> int:
        return max(0, int(end.timestamp() * 1000) - self.limit.now_ms)


def _ms_between(start: datetime, end: datetime) -> int:
    return int((end.timestamp() - start.timestamp()) * 1000)
