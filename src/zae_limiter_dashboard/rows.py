"""One limit of a bucket as the page shows it, computed from a state and a moment. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.in_force import stored_units
from zae_limiter.admission.slots import RETRY_S
from zae_limiter.bucket import calculate_retry_after, refill_state
from zae_limiter.models.bucket import BucketState
from zae_limiter.models.timestamps import MILLI, iso_from_ms
from zae_limiter_ops.views.modes import ENFORCED, ModeView

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.refusal import LimitedBy

HOUR_MS = 3_600_000
CLOSE_SHARE = 0.75  # of the capacity is used: the limit comes close


class LevelRow(NamedTuple):
    """One limit of a bucket at the moment ``now_ms``.

    ``level_milli`` is the level at that moment, with the tokens that have accrued since the read.
    ``drain_milli`` are the net millitokens that were consumed per second between two reads; None if
    the bucket was read once only. ``mode`` is the mode of the bucket, which is read only for the
    rows that are shown.
    """

    state: BucketState
    now_ms: int
    level_milli: int
    drain_milli: float | None = None
    mode: ModeView = ENFORCED

    @classmethod
    def at(cls, state: BucketState, now_ms: int, drain_milli: float | None = None) -> LevelRow:
        """Return the row of a state at a moment."""
        level_milli = state.tokens_milli
        if level_milli != state.capacity_milli:
            level_milli = refill_state(state, now_ms).new_tokens_milli
        return cls(state, now_ms, level_milli, drain_milli)

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
    def level(self) -> int | Decimal:
        """The level in whole tokens, or in currency units of a budget; negative in debt."""
        return self._shown(self.level_milli)

    @property
    def capacity(self) -> int | Decimal:
        """The capacity, or the amount of a quota, in the units of the level."""
        return self._shown(self.state.capacity_milli)

    @property
    def currency(self) -> str | None:
        """The currency of a budget."""
        return None if self.state.terms is None else self.state.terms.currency

    @property
    def debt(self) -> int | Decimal:
        """The tokens or the money that is owed, rounded up. Soft limits owe nothing."""
        return 0 if self.is_soft else max(0, -self.level)

    @property
    def is_quota(self) -> bool:
        """Whether the limit has an amount for each window, instead of a refill."""
        return self.state.terms is not None and self.state.terms.is_quota

    @property
    def is_soft(self) -> bool:
        """Whether the limit never rejects."""
        return self.state.terms is not None and self.state.terms.soft

    @property
    def used(self) -> int | Decimal | None:
        """The settled use of a quota in its window; None for other limits."""
        return self.state.used if not self._is_over else self._shown(0)

    @property
    def held(self) -> int | Decimal | None:
        """The amount of a quota that calls in flight hold; None for other limits."""
        return self.state.held if not self._is_over else self._shown(0)

    @property
    def window_end(self) -> str | None:
        """The end of a quota's window, at which the next one begins; None if none runs."""
        end = None if self._is_over else self.state.window_end
        return None if end is None else f"{end:%Y-%m-%d %H:%M} {end.tzname()}"

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
    def bar(self) -> float:
        """The length of the bar, from 0 to 100."""
        return round(min(100.0, max(0.0, self.used_share * 100)), 1)

    @property
    def rejected(self) -> int:
        """The calls that the bucket has rejected in the running hour."""
        return self.state.rejected if self._is_this_hour else 0

    @property
    def asked(self) -> int | Decimal:
        """The largest rejected amount of this limit in the running hour."""
        return self.state.asked if self._is_this_hour else 0

    @property
    def _is_this_hour(self) -> bool:
        return self.state.last_refill_ms // HOUR_MS == self.now_ms // HOUR_MS

    @property
    def is_concurrent(self) -> bool:
        """Whether the limit bounds the calls in flight."""
        return self.state.refill_amount_milli == 0

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
    def paused_seconds(self) -> float:
        """The remaining time of a pause; 0 if the bucket is not paused."""
        until_ms = self.state.paused_until_ms
        return 0.0 if until_ms is None else max(0, until_ms - self.now_ms) / 1000

    @property
    def denied_seconds(self) -> float:
        """The remaining time of mode deny, infinite without an end; 0 in any other mode."""
        return self.mode.denied_seconds(self.now_ms)

    @property
    def stopped_seconds(self) -> float:
        """The time for which a pause or mode deny stops every call; 0 if none does."""
        return max(self.paused_seconds, self.denied_seconds)

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
    def fits_after_seconds(self) -> float:
        """The time until the largest rejected amount, or one token, can be taken.

        For slots, it is the time after which a caller should ask again. It is never shorter than a
        pause or mode deny, and infinite if the amount exceeds the capacity. A soft limit never
        makes a call wait, nor does a mode that rejects nobody.
        """
        state = self.state
        if self.is_soft or self.mode.never_rejects:
            return self.stopped_seconds
        is_full = self.level_milli >= state.capacity_milli and self.mode is ENFORCED
        if is_full and not state.asked and state.paused_until_ms is None:
            return 0.0  # most of very many buckets are full, and all are sorted by this time
        is_money = state.limit.currency is not None
        wanted_milli = stored_units(self.asked, is_money) or (1 if is_money else MILLI)
        if wanted_milli > max(state.capacity_milli, self.level_milli):
            return math.inf
        seconds = self._until(wanted_milli)
        return max(min(seconds, RETRY_S) if self.is_concurrent else seconds, self.stopped_seconds)

    @property
    def retry_at(self) -> str | None:
        """The moment at which the asked amount fits, as ISO text; None if that is now or never."""
        seconds = self.fits_after_seconds
        if not seconds or math.isinf(seconds):
            return None
        return iso_from_ms(self.now_ms + math.ceil(seconds * 1000))

    @property
    def full_after_seconds(self) -> float:
        """The time until the bucket is full again, provided that nothing else is charged.

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
    def holds_expire_seconds(self) -> float | None:
        """The time until the first held slot or amount expires unless it is renewed."""
        moment_ms = self.state.holds_expire_ms
        return None if moment_ms is None else max(0, moment_ms - self.now_ms) / 1000

    @property
    def raised(self) -> int | None:
        """The highest threshold, in percent, that was raised in the window of a quota."""
        return None if self._is_over else self.state.raised

    @property
    def is_limited(self) -> bool:
        """Whether calls are rejected now.

        A pause or mode deny rejects them, a debt, or a level below the asked amount.
        """
        if self.stopped_seconds:
            return True
        if self.is_soft or self.mode.never_rejects:
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

    def _until(self, level: int) -> float:
        missing = level - self.level_milli
        if self.is_concurrent:
            return self.state.refill_period_ms / 1000 if missing > 0 else 0.0
        if self.is_quota:  # full when the next window begins
            return (self._window_seconds or 0.0) if missing > 0 else 0.0
        state = self.state
        return calculate_retry_after(missing, state.refill_amount_milli, state.refill_period_ms)


class LimitedBucket(NamedTuple):
    """A bucket that rejects calls, with the limit that is to blame and the end of it."""

    row: LevelRow
    rejected: int

    @property
    def reason(self) -> str:
        """The condition of the limit in words."""
        return {
            "denied": "denied by its mode",
            "paused": "paused by hand or by a provider",
            "debt": "overdrawn until its window ends"
            if self.row.is_quota
            else "in debt: the level must come back to 0",
            "limited": "too few tokens for the calls that were rejected",
        }.get(self.row.condition, "rejected earlier in this hour; it fits now")


def limited_buckets(rows: Iterable[LevelRow]) -> list[LimitedBucket]:
    """Return a line for each bucket that rejects calls or has rejected some in this hour.

    Buckets that reject now come first, then those with the most rejections. Of several limits the
    one with the longest wait is shown.
    """
    by_bucket: dict[tuple[str, str], list[LevelRow]] = {}
    for row in rows:
        by_bucket.setdefault(row.bucket, []).append(row)
    found = []
    for limits in by_bucket.values():
        blamed = max(
            limits, key=lambda row: (row.is_limited, row.asked > 0, row.fits_after_seconds)
        )
        found.append(LimitedBucket(blamed, blamed.rejected))
    return sorted(
        found, key=lambda each: (not each.row.is_limited, -each.rejected, each.row.bucket)
    )


def first_to_be_exhausted(rows: Iterable[LevelRow]) -> list[LevelRow]:
    """Sort limits that come close: soonest exhausted first, then the most used."""

    def rank(row: LevelRow) -> tuple[float, float, tuple[str, str]]:
        seconds = row.empty_after_seconds
        return (math.inf if seconds is None else seconds, -row.used_share, row.bucket)

    return sorted(rows, key=rank)


def in_flight(rows: Iterable[LevelRow]) -> list[LevelRow]:
    """Return the limits of which calls hold slots or amounts, soonest expiry first."""

    def rank(row: LevelRow) -> tuple[float, tuple[str, str]]:
        seconds = row.holds_expire_seconds
        return (math.inf if seconds is None else seconds, row.bucket)

    return sorted((row for row in rows if row.in_flight), key=rank)


def debts(rows: Iterable[LevelRow]) -> list[LevelRow]:
    """Return the limits in debt, the largest debt first."""
    return sorted((row for row in rows if row.debt), key=lambda row: (row.level_milli, row.bucket))


# The columns by which the rows of a resource are sorted; the most urgent rows come first. Rows with
# equal values stay in the order of their names.
SORTS: dict[str, Callable[[LevelRow], float]] = {
    "used": lambda row: row.level_milli / row.state.capacity_milli,
    "wait": lambda row: -row.fits_after_seconds,
    "rejected": lambda row: -row.rejected,
    "level": lambda row: row.level_milli,
    "name": lambda row: 0,
}
DEFAULT_SORT = "used"


def matching(rows: Sequence[LevelRow], search: str) -> Sequence[LevelRow]:
    """Return the rows whose entity contains a text, without regard to case."""
    wanted = search.strip().casefold()
    if not wanted:
        return rows
    return [row for row in rows if wanted in row.state.entity_id.casefold()]
