"""The overview: who is limited, who comes close, what is in flight, and what has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter_dashboard.rows import LimitedBucket, debts, in_flight, limited_buckets
from zae_limiter_dashboard.selection import SHOWN, Selection
from zae_limiter_ops.views.formatting import LEVELS
from zae_limiter_ops.views.limit_view import LimitView

if TYPE_CHECKING:
    from collections.abc import Container

    from zae_limiter_dashboard.store import Watched


class LimitedLine(NamedTuple):
    """A limited bucket with the configuration level of its limits."""

    bucket: LimitedBucket
    level: str
    fits_elsewhere: bool  # what refused the last call has enough again


@dataclass(frozen=True, slots=True)
class Overview:
    """The live part of the overview. Each list is cut; the counts are those of all rows."""

    limited: tuple[LimitedLine, ...]
    limited_count: int
    limited_now: int
    close: tuple[LimitView, ...]
    close_count: int
    in_flight: tuple[LimitView, ...]
    in_flight_count: int
    debts: tuple[LimitView, ...]
    debt_count: int


def overview_of(chosen: Selection, fresh: list[LimitView], watched: Watched) -> Overview:
    """Return the overview with levels that were read now."""
    by_name = {(row.bucket, row.limit_name): row for row in fresh}

    def renewed(rows: list[LimitView]) -> list[LimitView]:
        found = [by_name.get((row.bucket, row.limit_name)) for row in rows]
        return [row for row in found if row is not None]

    shown = watched.with_modes(renewed(chosen.limited))
    # Limits that have changed since the listing may reject nothing any more.
    refusing = {row.bucket for row in shown if row.rejected or row.is_limited or row.debt}
    roomy = {(*row.bucket, row.limit_name) for row in shown if row.fits_after_seconds <= 0}
    limited = tuple(
        _line(each, watched, roomy)
        for each in limited_buckets(row for row in shown if row.bucket in refusing)
    )
    close = tuple(row for row in renewed(chosen.close) if row.is_close)
    return Overview(
        limited=limited,
        limited_count=chosen.limited_count - len({row.bucket for row in chosen.limited} - refusing),
        limited_now=max(
            sum(line.bucket.row.is_limited for line in limited),
            chosen.limited_now if chosen.limited_count > SHOWN else 0,
        ),
        close=close,
        close_count=chosen.close_count - (len(chosen.close) - len(close)),
        in_flight=tuple(in_flight(renewed(chosen.in_flight))),
        in_flight_count=chosen.in_flight_count,
        debts=tuple(debts(renewed(chosen.debts))),
        debt_count=chosen.debt_count,
    )


def _line(
    limited: LimitedBucket, watched: Watched, roomy: Container[tuple[str, str, str]]
) -> LimitedLine:
    entity_id, resource = limited.row.bucket
    source = watched.settings(entity_id, resource).source
    level = "passed by calls" if source is None else LEVELS.get(source.value, source.value)
    return LimitedLine(limited, level, limited.row.limited_by in roomy)
