"""The limits of buckets with their levels, waiting times and modes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zae_limiter.admission.in_force import stored_units
from zae_limiter.admission.slots import RETRY_S
from zae_limiter.bucket import calculate_retry_after
from zae_limiter.models.timestamps import MILLI, iso_from_ms
from zae_limiter_ops.views.entities import limits_in_force
from zae_limiter_ops.views.in_force import LimitsInForce
from zae_limiter_ops.views.modes import ENFORCED, ModeView

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.bucket import BucketState


@dataclass(frozen=True, slots=True)
class BucketView:
    """One limit of a bucket, with its level at the time of the read."""

    state: BucketState
    from_call: bool  # calls have passed the limit, in addition to the stored one
    limits_changed: bool  # the limits in force have changed since the last acquire
    last_used_hour: str | None  # start of the last hour with consumption
    mode: ModeView = ENFORCED

    @property
    def debt_milli(self) -> int:
        return max(0, -self.state.tokens_milli)

    @property
    def retry_after_seconds(self) -> float:
        """The time until one token can be taken, provided that nothing else is charged.

        For a budget it is a billionth of the currency unit. For slots, it is the time after which a
        caller should ask again. A soft limit never makes a call wait. The time is never shorter
        than the rest of a pause or of mode deny.
        """
        if self.state.limit.soft or self.mode.never_rejects:
            return self.stopped_seconds
        least = MILLI if self.state.limit.currency is None else 1
        seconds = min(self._until(least), RETRY_S) if self._has_slots else self._until(least)
        return max(seconds, self.stopped_seconds)

    def fits_after_seconds(self, amount: int | Decimal) -> float:
        """Return the time until an amount can be taken; infinite if it never can.

        The time holds provided that nothing else is charged.
        """
        if self.state.limit.soft or self.mode.never_rejects:
            return self.stopped_seconds
        units = stored_units(amount, self.state.limit.currency is not None)
        if units > self.state.capacity_milli and units > self.state.tokens_milli:
            return math.inf
        seconds = self._until(units)
        return max(min(seconds, RETRY_S) if self._has_slots else seconds, self.stopped_seconds)

    @property
    def stopped_seconds(self) -> float:
        """The time for which a pause or mode deny stops every call; 0 if none does."""
        return max(self.paused_seconds, self.denied_seconds)

    @property
    def denied_seconds(self) -> float:
        """The remaining time of mode deny, infinite without an end; 0 in any other mode."""
        return self.mode.denied_seconds(self.state.last_refill_ms)

    @property
    def paused_seconds(self) -> float:
        """The remaining time of the pause; 0 if the bucket is not paused."""
        until_ms = self.state.paused_until_ms
        return 0.0 if until_ms is None else max(0, until_ms - self.state.last_refill_ms) / 1000

    @property
    def paused_until(self) -> str | None:
        """The end of the pause as ISO text."""
        until_ms = self.state.paused_until_ms
        return None if until_ms is None else iso_from_ms(until_ms)

    @property
    def used_share(self) -> float:
        """The used share of the capacity: 1 for an empty bucket, more in debt.

        Top-ups lift the level of a quota above its amount.
        """
        return max(0.0, 1 - self.state.tokens_milli / self.state.capacity_milli)

    @property
    def full_after_seconds(self) -> float:
        """The time until the bucket is full; for slots, until all held slots expire."""
        return self._until(self.state.capacity_milli)

    @property
    def _has_slots(self) -> bool:
        return self.state.refill_amount_milli == 0

    def _until(self, level_milli: int) -> float:
        state = self.state
        missing = level_milli - state.tokens_milli
        if self._has_slots:
            return state.refill_period_ms / 1000 if missing > 0 else 0.0
        if state.limit.is_quota:  # full when the next window begins
            if missing <= 0 or state.window_end is None:
                return 0.0
            return max(0.0, state.window_end.timestamp() - state.last_refill_ms / 1000)
        return calculate_retry_after(missing, state.refill_amount_milli, state.refill_period_ms)


def view_buckets(
    repository: SyncRepository, entity_id: str, resource: str | None = None
) -> list[BucketView]:
    """Return the limits of all buckets of an entity, or of its bucket on ``resource``."""
    states = repository.get_buckets(entity_id, resource)
    names = dict.fromkeys(state.resource for state in states)
    last = {name: last_used_hour(repository, entity_id, name) for name in names}
    shown = {name: limits_in_force(repository, entity_id, name) for name in names}
    stored = {(state.resource, state.limit_name, state.limit) for state in states}
    views, seen = [], set[tuple[str, str]]()
    for state in LimitsInForce().applied(repository, states):
        key = (state.resource, state.limit_name)
        # The stored limit comes first; calls have passed a second limit of that name.
        from_call = key in seen
        is_stored = (*key, state.limit) in stored
        in_force = state.limit in shown[state.resource].limits
        changed = not from_call and not (is_stored and in_force)
        mode = shown[state.resource].mode or ENFORCED
        views.append(BucketView(state, from_call, changed, last[state.resource], mode))
        seen.add(key)
    return views


def last_used_hour(repository: SyncRepository, entity_id: str, resource: str) -> str | None:
    """Return the start of the last hour with consumption; None if the hour is unknown."""
    summary = repository.get_usage_summary(entity_id, resource, "hourly")
    return summary.max_window_start or repository.get_last_use(entity_id, resource)
