"""The rows of the overview, chosen from all rows. Pure, and made once for each board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zae_limiter_dashboard.rows import debts, first_to_be_exhausted, in_flight, limited_buckets
from zae_limiter_ops.views.limit_view import LimitView

SHOWN = 15  # rows of each list


class Selection(NamedTuple):
    """The rows that an overview is made of, chosen from the board; the counts are those of all."""

    limited: list[LimitView]
    limited_count: int  # of buckets
    limited_now: int
    close: list[LimitView]
    close_count: int
    in_flight: list[LimitView]
    in_flight_count: int
    debts: list[LimitView]
    debt_count: int

    @property
    def rows(self) -> list[LimitView]:
        return [*self.limited, *self.close, *self.in_flight, *self.debts]


def select(noteworthy: Sequence[LimitView]) -> Selection:
    """Choose the rows of each list. A limit that rejects calls is not listed as close, too."""
    refusing = [row for row in noteworthy if row.rejected or row.is_limited]
    limited = limited_buckets(refusing)
    shown = {each.row.bucket for each in limited[:SHOWN]}
    are_limited = {each.row.bucket for each in limited}
    close = first_to_be_exhausted(
        row
        for row in noteworthy
        if row.is_close and row.bucket not in are_limited and not row.is_concurrent
    )
    held, owed = in_flight(noteworthy), debts(noteworthy)
    return Selection(
        limited=[row for row in refusing if row.bucket in shown],
        limited_count=len(limited),
        limited_now=sum(each.row.is_limited for each in limited),
        close=close[:SHOWN],
        close_count=len(close),
        in_flight=held[:SHOWN],
        in_flight_count=len(held),
        debts=owed[:SHOWN],
        debt_count=len(owed),
    )
