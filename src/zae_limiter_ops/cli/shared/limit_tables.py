"""Tables of limits: one row for each limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter_ops.cli.shared.formatting import format_rate
from zae_limiter_ops.cli.shared.records import print_columns
from zae_limiter_ops.reports.columns import Column, of_part

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit

LIMIT_COLUMNS: tuple[Column[Limit | None], ...] = (
    Column(title="limit", value=lambda limit: limit and limit.name),
    Column(title="rate>", value=lambda limit: limit and format_rate(limit)),
    Column(title="burst>", value=lambda limit: limit and limit.capacity),
)


class LimitRow(NamedTuple):
    """One limit of a resource, with a note; without a limit, the note alone."""

    resource: str
    limit: Limit | None
    note: str


def _limit_of(row: LimitRow) -> Limit | None:
    return row.limit


def print_limits(limits: Iterable[Limit]) -> None:
    """Print a row for each limit."""
    print_columns(LIMIT_COLUMNS, limits)


def limit_rows(resource: str, limits: Sequence[Limit], note: str) -> Iterator[LimitRow]:
    """Yield a row for each limit, or one row if there are none.

    Resource and note are printed with the first limit only.
    """
    for limit in limits or (None,):
        yield LimitRow(resource, limit, note)
        resource = note = ""


def print_limit_rows(rows: Iterable[LimitRow], note_title: str) -> None:
    """Print the limits of several resources."""
    columns: list[Column[LimitRow]] = [
        Column(title="resource", value=lambda row: row.resource),
        *of_part(LIMIT_COLUMNS, _limit_of),
        Column(title=note_title, value=lambda row: row.note),
    ]
    print_columns(columns, rows)
