"""Limits printed as tables, and as the results of commands that change them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.models.notation import format_limit
from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.records import print_columns
from zae_limiter_ops.cli.shared.tables import print_hint, print_line, print_result
from zae_limiter_ops.views.columns import Column, of_part
from zae_limiter_ops.views.formatting import (
    describe_limits,
    describe_superseded,
    format_rate,
    limits_json,
    plain_amount,
    superseded_json,
)

if TYPE_CHECKING:
    from zae_limiter.models.config import SupersededLimit
    from zae_limiter.models.limit import Limit

LIMIT_COLUMNS: tuple[Column[Limit | None], ...] = (
    Column(title="limit", value=lambda limit: limit and limit.name),
    Column(title="rate>", value=lambda limit: limit and format_rate(limit)),
    Column(title="burst>", value=lambda limit: limit and plain_amount(limit.amount)),
)


class LimitChange(NamedTuple):
    """The stored limits before and after a command, and what no longer applies because of it."""

    before: Sequence[Limit]
    after: Sequence[Limit]
    is_change: bool
    superseded: Sequence[SupersededLimit] = ()  # limits in force that no longer apply


class LimitRow(NamedTuple):
    """One limit of a resource, with a note; ``limit`` is None if the resource has no limits."""

    resource: str
    limit: Limit | None
    note: str


def _limit_of(row: LimitRow) -> Limit | None:
    return row.limit


def print_limits(limits: Iterable[Limit]) -> None:
    """Print a row for each limit."""
    print_columns(LIMIT_COLUMNS, limits)


def report_limits(output: str, subject: dict[str, Any], limits: Sequence[Limit]) -> None:
    """Print stored limits; ``subject`` names their place in JSON."""
    if output == "json":
        print_json({**subject, "limits": limits_json(limits)})
    elif limits:
        print_limits(limits)


def report_change(output: str, subject: dict[str, Any], label: str, change: LimitChange) -> None:
    """Print the limits after a command has set them; ``label`` names their place for people."""
    earlier = f"before: {describe_limits(change.before)}" if change.is_change else "unchanged"
    lines = [f"{label}: {describe_limits(change.after)} ({earlier})"]
    superseded = change.superseded if change.is_change else ()
    if superseded:
        lines.append(f"no longer applies: {describe_superseded(superseded)}")
    fields = {
        "limits": limits_json(change.after),
        "changed": change.is_change,
        "superseded": superseded_json(superseded),
    }
    print_result(output, {**subject, **fields}, *lines)
    if superseded:
        options = shlex.join(_options_of(superseded))
        print_hint(
            output,
            "calls that name a limit which no longer applies fail; "
            f"to add it again: {options} --add",
        )


def _options_of(superseded: Sequence[SupersededLimit]) -> Iterator[str]:
    """Yield the options that set the limits; several rates of one name leave the choice open."""
    for name in dict.fromkeys(each.limit.name for each in superseded):
        texts = {format_limit(each.limit) for each in superseded if each.limit.name == name}
        yield from ("-l", texts.pop() if len(texts) == 1 else f"{name}:RATE")


def report_removal(
    output: str, subject: dict[str, Any], label: str, limits: Sequence[Limit]
) -> None:
    """Print the limits that a command has removed; ``label`` names their place for people."""
    if output == "json":
        print_json({**subject, "deleted": bool(limits), "limits": limits_json(limits)})
    elif limits:
        print_line(f"{label}: removed {describe_limits(limits)}")


def limit_rows(resource: str, limits: Sequence[Limit], note: str) -> Iterator[LimitRow]:
    """Yield a row for each limit, or one row for a resource without limits.

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
