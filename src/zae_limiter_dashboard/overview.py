"""The overview: who is limited, who comes close, what is in flight, and what has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.models.switches import SwitchMode
from zae_limiter_dashboard.rows import (
    LevelRow,
    LimitedBucket,
    debts,
    in_flight,
    limited_buckets,
)
from zae_limiter_dashboard.selection import SHOWN, Selection
from zae_limiter_ops.cli.shared.formatting import LEVELS

if TYPE_CHECKING:
    from zae_limiter_dashboard.store import Watched


class LimitedLine(NamedTuple):
    """A limited bucket with the configuration level of its limits.

    ``refused_by`` is the parent if the bucket itself holds enough and its parent does not.
    """

    bucket: LimitedBucket
    level: str
    refused_by: str | None
    mode: SwitchMode = SwitchMode.ENFORCE

    @property
    def is_limited(self) -> bool:
        """Whether calls are rejected now. A pause rejects them in every mode."""
        row = self.bucket.row
        if self.mode is SwitchMode.DENY:
            return True
        if self.mode is SwitchMode.ENFORCE:
            return row.is_limited
        return row.paused_seconds > 0

    @property
    def mode_text(self) -> str:
        """The effect of a mode other than the usual one; empty for that one."""
        if self.mode is SwitchMode.ENFORCE:
            return ""
        if self.mode is SwitchMode.DENY:
            return "mode deny: every call is rejected"
        return "" if self.bucket.row.paused_seconds else f"mode {self.mode}: nobody is rejected"


@dataclass(frozen=True, slots=True)
class Overview:
    """The live part of the overview. Each list is cut; the counts are those of all rows."""

    limited: tuple[LimitedLine, ...]
    limited_count: int
    limited_now: int
    close: tuple[LevelRow, ...]
    close_count: int
    in_flight: tuple[LevelRow, ...]
    in_flight_count: int
    debts: tuple[LevelRow, ...]
    debt_count: int


def overview_of(chosen: Selection, fresh: list[LevelRow], watched: Watched) -> Overview:
    """Return the overview with levels that were read now."""
    by_name = {(row.bucket, row.limit_name): row for row in fresh}

    def renewed(rows: list[LevelRow]) -> list[LevelRow]:
        found = [by_name.get((row.bucket, row.limit_name)) for row in rows]
        return [row for row in found if row is not None]

    limited = tuple(_line(each, watched) for each in limited_buckets(renewed(chosen.limited)))
    return Overview(
        limited=limited,
        limited_count=chosen.counts[0],
        limited_now=max(
            sum(line.is_limited for line in limited),
            chosen.limited_now if chosen.counts[0] > SHOWN else 0,
        ),
        close=tuple(renewed(chosen.close)),
        close_count=chosen.counts[1],
        in_flight=tuple(in_flight(renewed(chosen.in_flight))),
        in_flight_count=chosen.counts[2],
        debts=tuple(debts(renewed(chosen.debts))),
        debt_count=chosen.counts[3],
    )


def _line(limited: LimitedBucket, watched: Watched) -> LimitedLine:
    entity_id, resource = limited.row.bucket
    source, mode = watched.settings(entity_id, resource)
    level = "passed by calls" if source is None else LEVELS.get(source.value, source.value)
    refused_by = None
    if not limited.row.is_limited:
        entity = watched.entity(entity_id)
        if entity is not None and entity.cascade:
            refused_by = entity.parent_id
    return LimitedLine(limited, level, refused_by, mode)
