"""One limit of a bucket at a moment, as commands and the page show it."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.in_force import stored_units
from zae_limiter.admission.slots import RETRY_S
from zae_limiter.bucket import calculate_retry_after, refill_state
from zae_limiter.models.bucket import BucketState
from zae_limiter.models.timestamps import MILLI, iso_from_ms
from zae_limiter_ops.views.entities import limits_in_force
from zae_limiter_ops.views.in_force import LimitsInForce
from zae_limiter_ops.views.modes import ENFORCED, ModeView

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from decimal import Decimal

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.refusal import LimitedBy

HOUR_MS = 3_600_000
CLOSE_SHARE = 0.75  # of the capacity is used: the limit comes close


class LimitView(NamedTuple):
    """One limit of a bucket at the moment ``now_ms``."""

    state: BucketState
    now_ms: int
    # The level at that moment, with the tokens that have accrued since the read.
    level_milli: int
    mode: ModeView = ENFORCED  # of the bucket
    from_call: bool = False  # calls have passed the limit, in addition to the stored one
    # Net consumption per second between two reads; None if the bucket was read once only.
    drain_milli: float | None = None

    @classmethod
    def at(
        cls,
        state: BucketState,
        now_ms: int,
        *,
        mode: ModeView = ENFORCED,
        from_call: bool = False,
        drain_milli: float | None = None,
    ) -> LimitView:
        """Return the view of a state at a moment."""
        level_milli = state.tokens_milli
        if level_milli != state.capacity_milli:
            level_milli = refill_state(state, now_ms).new_tokens_milli
        return cls(state, now_ms, level_milli, mode, from_call, drain_milli)

    # --- which limit

    @property
    def bucket(self) -> tuple[str, str]:
        """The entity and the resource."""
        return self.state.entity_id, self.state.resource

    @property
    def entity_id(self) -> str:
        return self.state.entity_id

    @property
    def resource(self) -> str:
        return self.state.resource

    @property
    def limit_name(self) -> str:
        return self.state.limit_name

    @property
    def currency(self) -> str | None:
        """The currency of a budget."""
        return None if self.state.terms is None else self.state.terms.currency

    @property
    def is_quota(self) -> bool:
        """Whether the limit has an amount for each window, instead of a refill."""
        return self.state.terms is not None and self.state.terms.is_quota

    @property
    def is_soft(self) -> bool:
        """Whether the limit never rejects."""
        return self.state.terms is not None and self.state.terms.soft

    @property
    def is_concurrent(self) -> bool:
        """Whether the limit bounds the calls in flight."""
        return self.state.refill_amount_milli == 0

    # --- level and use

    @property
    def level(self) -> int | Decimal:
        """The level in whole tokens, or in currency units of a budget; negative in debt."""
        return self._shown(self.level_milli)

    @property
    def capacity(self) -> int | Decimal:
        """The capacity, or the amount of a quota, in the units of the level."""
        return self._shown(self.state.capacity_milli)

    @property
    def below_zero_milli(self) -> int:
        """What the level is below zero, in its stored units; also of a soft limit."""
        return max(0, -self.level_milli)

    @property
    def debt(self) -> int | Decimal:
        """The tokens or the money that is owed, rounded up. Soft limits owe nothing."""
        return 0 if self.is_soft else max(0, -self.level)

    @property
    def used(self) -> int | Decimal | None:
        """The settled use of a quota in its window; None for other limits."""
        return self.state.used if not self._is_over else self._shown(0)

    @property
    def held(self) -> int | Decimal | None:
        """The amount of a quota that calls in flight hold; None for other limits."""
        return self.state.held if not self._is_over else self._shown(0)

    @property
    def used_share(self) -> float:
        """The used share of the capacity: 0 for a full bucket, 1 for an empty one, more in debt.

        Top-ups lift the level of a quota above its amount.
        """
        return max(0.0, 1 - self.level_milli / self.state.capacity_milli)

    @property
    def used_percent(self) -> int:
        """The used share in percent, rounded down so that only an empty bucket has 100."""
        return math.floor(self.used_share * 100)

    @property
    def raised(self) -> int | None:
        """The highest threshold, in percent, that was raised in the window of a quota."""
        return None if self._is_over else self.state.raised

    @property
    def held_slots(self) -> int:
        """The calls in flight, for a limit that bounds them."""
        held_milli = self.state.capacity_milli - self.level_milli
        return -(-held_milli // MILLI) if self.is_concurrent else 0

    @property
    def in_flight(self) -> int | Decimal:
        """The slots or the amount of a quota that calls in flight hold."""
        return self.held or self.held_slots

    @property
    def holds_expire_seconds(self) -> float | None:
        """The time until the first held slot or amount expires unless it is renewed."""
        moment_ms = self.state.holds_expire_ms
        return None if moment_ms is None else max(0, moment_ms - self.now_ms) / 1000

    # --- what stops calls

    @property
    def paused_seconds(self) -> float:
        """The remaining time of a pause; 0 if the bucket is not paused."""
        until_ms = self.state.paused_until_ms
        return 0.0 if until_ms is None else max(0, until_ms - self.now_ms) / 1000

    @property
    def paused_until(self) -> str | None:
        """The end of the pause as ISO text."""
        until_ms = self.state.paused_until_ms
        return None if until_ms is None else iso_from_ms(until_ms)

    @property
    def denied_seconds(self) -> float:
        """The remaining time of mode deny, infinite without an end; 0 in any other mode."""
        return self.mode.denied_seconds(self.now_ms)

    @property
    def stopped_seconds(self) -> float:
        """The time for which a pause or mode deny stops every call; 0 if none does."""
        return max(self.paused_seconds, self.denied_seconds)

    @property
    def rejected(self) -> int:
        """The calls that the bucket has rejected in the running hour."""
        return self.state.rejected if self._is_this_hour else 0

    @property
    def asked(self) -> int | Decimal:
        """The largest rejected amount of this limit in the running hour."""
        return self.state.asked if self._is_this_hour else 0

    @property
    def limited_by(self) -> LimitedBy | None:
        """What refused the last acquire that the bucket has counted in the running hour."""
        return self.state.limited_by if self._is_this_hour else None

    @property
    def is_refused_elsewhere(self) -> bool:
        """Whether another limit or another bucket refused the last acquire."""
        by = self.limited_by
        return by is not None and by != (*self.bucket, self.limit_name)

    @property
    def is_limited(self) -> bool:
        """Whether calls are rejected now.

        A pause or mode deny rejects them, a debt, or a level below the asked amount.
        """
        if self.stopped_seconds:
            return True
        if self._never_rejects:
            return False
        if self.level_milli < 0:
            return True
        return self.rejected > 0 and self.asked > 0 and self.level < self.asked

    @property
    def is_close(self) -> bool:
        """Whether most of the limit is used."""
        return self.used_share >= CLOSE_SHARE

    @property
    def condition(self) -> str:
        """One word about the limit, so that no colour is needed to read it."""
        if self.denied_seconds:
            return "denied"
        if self.paused_seconds:
            return "paused"
        if self.level_milli < 0:
            return "overdrawn" if self.is_soft else "debt"
        if self.is_limited:
            return "limited"
        return "close" if self.is_close else "ok"

    # --- times, provided that nothing else is charged

    @property
    def retry_after_seconds(self) -> float:
        """The time until one token can be taken, or a billionth of the currency unit of a budget.

        For slots, it is the time after which a caller should ask again. It is never shorter than a
        pause or mode deny. A soft limit never makes a call wait, nor does a mode that rejects
        nobody.
        """
        return self._fits_after(MILLI if self.currency is None else 1)

    def fits_after(self, amount: int | Decimal) -> float:
        """Return the time until an amount can be taken; infinite if it never can."""
        return self._fits_after(stored_units(amount, self.currency is not None))

    @property
    def fits_after_seconds(self) -> float:
        """The time until the largest rejected amount, or one token, can be taken."""
        is_full = self.level_milli >= self.state.capacity_milli and self.mode is ENFORCED
        if is_full and not self.state.asked and self.state.paused_until_ms is None:
            return 0.0  # most of very many buckets are full, and all are sorted by this time
        return self.fits_after(self.asked) if self.asked else self.retry_after_seconds

    @property
    def retry_at(self) -> str | None:
        """The moment at which the asked amount fits, as ISO text; None if that is now or never."""
        seconds = self.fits_after_seconds
        if not seconds or math.isinf(seconds):
            return None
        return iso_from_ms(self.now_ms + math.ceil(seconds * 1000))

    @property
    def full_after_seconds(self) -> float:
        """The time until the bucket is full again.

        For slots, all of them have expired by then unless they are renewed.
        """
        return self._until(self.state.capacity_milli)

    @property
    def empty_after_seconds(self) -> float | None:
        """The time until the limit is exhausted at the present rate; None if that never happens.

        A quota does not refill, and is not exhausted if its window ends before.
        """
        if self.drain_milli is None or self.is_concurrent:
            return None
        refill = self.state.refill_amount_milli * 1000 / self.state.refill_period_ms
        net = self.drain_milli - (0 if self.is_quota else refill)
        if net <= 0:
            return None
        seconds = max(0, self.level_milli) / net
        rest = self._window_seconds if self.is_quota else None
        return None if rest is not None and rest < seconds else seconds

    @property
    def window_end(self) -> datetime | None:
        """The end of a quota's window, at which the next one begins; None if none runs."""
        return None if self._is_over else self.state.window_end

    def _fits_after(self, units: int) -> float:
        if self._never_rejects:
            return self.stopped_seconds
        if units > max(self.state.capacity_milli, self.level_milli):
            return math.inf
        seconds = self._until(units)
        return max(min(seconds, RETRY_S) if self.is_concurrent else seconds, self.stopped_seconds)

    def _until(self, level_milli: int) -> float:
        """Return the time until the level is at least ``level_milli``."""
        state, missing = self.state, level_milli - self.level_milli
        if missing <= 0:
            return 0.0
        if self.is_concurrent:
            return state.refill_period_ms / 1000
        if self.is_quota:  # full when the next window begins
            return self._window_seconds or 0.0
        return calculate_retry_after(missing, state.refill_amount_milli, state.refill_period_ms)

    @property
    def _never_rejects(self) -> bool:
        return self.is_soft or self.mode.never_rejects

    @property
    def _is_this_hour(self) -> bool:
        return self.state.last_refill_ms // HOUR_MS == self.now_ms // HOUR_MS

    @property
    def _is_over(self) -> bool:
        """Whether the window of the read has ended since."""
        return self.is_quota and self._window_seconds == 0

    @property
    def _window_seconds(self) -> float | None:
        """The rest of a quota's window; None if no window runs."""
        end = self.state.window_end
        return None if end is None else max(0.0, end.timestamp() - self.now_ms / 1000)

    def _shown(self, units: int) -> int | Decimal:
        terms = self.state.terms
        return units // MILLI if terms is None else terms.shown(units)


def views_of_bucket(
    states: Iterable[BucketState], mode: ModeView = ENFORCED
) -> tuple[LimitView, ...]:
    """Return the limits of one bucket at the moment at which it was read."""
    views, names = [], set[str]()
    for state in states:
        # The stored limit of a name comes first; calls have passed another one of that name.
        from_call = state.limit_name in names
        views.append(LimitView.at(state, state.last_refill_ms, mode=mode, from_call=from_call))
        names.add(state.limit_name)
    return tuple(views)


# --- the buckets of an entity ----------------------------------------------------------------


class UsedLimit(NamedTuple):
    """One limit of a bucket of one entity, with what is read for few buckets only."""

    view: LimitView
    limits_changed: bool  # the limits in force have changed since the last acquire
    last_used_hour: str | None  # start of the last hour with consumption


def view_buckets(
    repository: SyncRepository, entity_id: str, resource: str | None = None
) -> list[UsedLimit]:
    """Return the limits of all buckets of an entity, or of its bucket on ``resource``."""
    states = repository.get_buckets(entity_id, resource)
    stored = {(state.resource, state.limit) for state in states}
    found = []
    for name, bucket in groupby(
        LimitsInForce().applied(repository, states), key=lambda state: state.resource
    ):
        last = last_used_hour(repository, entity_id, name)
        shown = limits_in_force(repository, entity_id, name)
        for view in views_of_bucket(bucket, shown.mode or ENFORCED):
            limit = view.state.limit
            is_current = (name, limit) in stored and limit in shown.limits
            found.append(UsedLimit(view, not view.from_call and not is_current, last))
    return found


def last_used_hour(repository: SyncRepository, entity_id: str, resource: str) -> str | None:
    """Return the start of the last hour with consumption; None if the hour is unknown."""
    summary = repository.get_usage_summary(entity_id, resource, "hourly")
    return summary.max_window_start or repository.get_last_use(entity_id, resource)
