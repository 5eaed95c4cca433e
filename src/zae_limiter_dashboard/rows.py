"""The limits of a page: selected, sorted and searched. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from zae_limiter_ops.views.limit_view import LimitView


class LimitedBucket(NamedTuple):
    """A bucket that rejects calls, with the limit that is to blame and the end of it."""

    row: LimitView
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


def limited_buckets(rows: Iterable[LimitView]) -> list[LimitedBucket]:
    """Return a line for each bucket that rejects calls or has rejected some in this hour.

    Buckets that reject now come first, then those with the most rejections. Of several limits the
    one with the longest wait is shown.
    """
    by_bucket: dict[tuple[str, str], list[LimitView]] = {}
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


def first_to_be_exhausted(rows: Iterable[LimitView]) -> list[LimitView]:
    """Sort limits that come close: soonest exhausted first, then the most used."""

    def rank(row: LimitView) -> tuple[float, float, tuple[str, str]]:
        seconds = row.empty_after_seconds
        return (math.inf if seconds is None else seconds, -row.used_share, row.bucket)

    return sorted(rows, key=rank)


def in_flight(rows: Iterable[LimitView]) -> list[LimitView]:
    """Return the limits of which calls hold slots or amounts, soonest expiry first."""

    def rank(row: LimitView) -> tuple[float, tuple[str, str]]:
        seconds = row.holds_expire_seconds
        return (math.inf if seconds is None else seconds, row.bucket)

    return sorted((row for row in rows if row.in_flight), key=rank)


def debts(rows: Iterable[LimitView]) -> list[LimitView]:
    """Return the limits in debt, the largest debt first."""
    return sorted((row for row in rows if row.debt), key=lambda row: (row.level_milli, row.bucket))


# The columns by which the rows of a resource are sorted; the most urgent rows come first. Rows with
# equal values stay in the order of their names.
SORTS: dict[str, Callable[[LimitView], float]] = {
    "used": lambda row: row.level_milli / row.state.capacity_milli,
    "wait": lambda row: -row.fits_after_seconds,
    "rejected": lambda row: -row.rejected,
    "level": lambda row: row.level_milli,
    "name": lambda row: 0,
}
DEFAULT_SORT = "used"


def matching(rows: Sequence[LimitView], search: str) -> Sequence[LimitView]:
    """Return the rows whose entity contains a text, without regard to case."""
    wanted = search.strip().casefold()
    if not wanted:
        return rows
    return [row for row in rows if wanted in row.state.entity_id.casefold()]
