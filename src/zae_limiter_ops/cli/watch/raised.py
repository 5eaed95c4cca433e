"""The thresholds that were raised since the last look, from the states of buckets. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter_ops.views.columns import Column
from zae_limiter_ops.views.formatting import format_amount, plain_amount

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from zae_limiter.models.bucket import BucketState

# Entity, resource, limit, and the position among the limits of that name in the bucket: calls may
# bring one beside the configured one.
_Place = tuple[str, str, str, int]


class RaisedThreshold(NamedTuple):
    """A threshold that was raised, with the quota as it was when the watcher saw the mark."""

    state: BucketState
    percent: int

    @property
    def used(self) -> int | Decimal | None:
        """The amount that was used, held amounts included."""
        used, held = self.state.used, self.state.held
        return used if used is None or held is None else used + held


class SeenMarks:
    """Remembers the mark of each quota at the last look."""

    def __init__(self) -> None:
        self._marks: dict[_Place, tuple[datetime | None, int]] = {}

    def new(self, states: Iterable[BucketState]) -> list[RaisedThreshold]:
        """Return the thresholds that were raised since the last look, the lowest first.

        After a reset or a top-up thresholds are raised again, and so they are in the next window.
        """
        before, self._marks = self._marks, {}
        found = []
        for place, state in _placed(states):
            if state.raised is None:
                continue
            window_start, last = before.get(place, (None, 0))
            if window_start != state.window_start:
                last = 0
            self._marks[place] = state.window_start, state.raised
            found += [
                RaisedThreshold(state, percent)
                for percent in state.limit.thresholds
                if last < percent <= state.raised
            ]
        return found


def _placed(states: Iterable[BucketState]) -> Iterator[tuple[_Place, BucketState]]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for state in states:
        name = (state.entity_id, state.resource, state.limit_name)
        yield (*name, counts[name]), state
        counts[name] += 1


def _with_currency(raised: RaisedThreshold, amount: int | Decimal | None) -> str:
    currency = raised.state.limit.currency
    return format_amount(amount) + (f" {currency}" if currency else "")


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


# The JSON has the fields of the event that the hook on_threshold gets.
COLUMNS: tuple[Column[RaisedThreshold], ...] = (
    Column(title="entity", key="entity_id", value=lambda each: each.state.entity_id),
    Column(title="resource", key="resource", value=lambda each: each.state.resource),
    Column(title="limit", key="limit_name", value=lambda each: each.state.limit_name),
    Column(key="percent", value=lambda each: each.percent),
    Column(title="reached>", value=lambda each: f"{each.percent} %"),
    Column(key="used", value=lambda each: plain_amount(each.used)),
    Column(title="used>", value=lambda each: _with_currency(each, each.used)),
    Column(key="amount", value=lambda each: plain_amount(each.state.limit.amount)),
    Column(title="of>", value=lambda each: _with_currency(each, each.state.limit.amount)),
    Column(key="window_start", value=lambda each: _moment(each.state.window_start)),
    Column(
        title="window ends", key="window_end", value=lambda each: _moment(each.state.window_end)
    ),
)
