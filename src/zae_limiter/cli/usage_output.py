"""Usage as a table, as JSON, as CSV and as a picture."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.render import Glyphs, make_console, short_number
from zae_limiter.cli.tables import print_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.usage import UsageSnapshot, UsageSummary


def nothing_found(repository: SyncRepository) -> str:
    if repository.capabilities.usage_history:
        return "no usage is recorded for that"
    return "no usage is recorded for that; on DynamoDB the aggregator of a stack records it"


def draw(
    found: list[UsageSnapshot], window: str, output: str, file: str | None, *, is_part: bool
) -> None:
    """A picture in a file or on the terminal; none if nothing was used."""
    from zae_limiter.visualization.series import usage_series

    series = usage_series(found, window)
    if is_part:
        click.echo(
            f"only the first {len(found):,} windows are drawn; choose a span: --start, --end",
            err=True,
        )
    if not series:
        return
    if file is not None:
        from zae_limiter.visualization.report import save

        save(series, file, output)
        click.echo(f"wrote {file}", err=True)
    else:
        from zae_limiter.visualization.terminal import plot

        console = make_console()
        ascii_only = Glyphs.of(console).full == "="
        click.echo(plot(series, console.width, short_number, ascii_only=ascii_only))


def _limit_names(found: Sequence[UsageSnapshot]) -> list[str]:
    return sorted({name for each in found for name in each.counters})


def _figure(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def print_windows(found: list[UsageSnapshot], window: str) -> None:
    """A row for each window, a column for each limit."""
    names = _limit_names(found)
    print_table(
        (f"{window} window", "entity", "resource", *(f"{name}>" for name in names), "calls>"),
        (
            (
                each.window_start.replace(":00:00Z", ":00Z"),
                each.entity_id,
                each.resource,
                *(_figure(each.counters.get(name)) for name in names),
                f"{each.total_events:,}",
            )
            for each in found
        ),
    )


def print_csv(found: list[UsageSnapshot]) -> None:
    names = _limit_names(found)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    fields = ("window_start", "window_end", "window_type", "entity_id", "resource", "total_events")
    writer.writerow((*fields, *names))
    for each in found:
        known = (getattr(each, field) for field in fields)
        writer.writerow((*known, *(each.counters.get(name, 0) for name in names)))


def print_summary_csv(found: UsageSummary) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("limit", "total", "average"))
    writer.writerows((name, found.total[name], found.average[name]) for name in found.total)


def print_summary(found: UsageSummary, window: str, plotted: bool) -> None:
    if plotted:
        say("")
    unit = "hour" if window == "hourly" else "day"
    print_table(
        ("limit", "total>", f"average per {unit}>"),
        ((name, f"{found.total[name]:,}", f"{found.average[name]:,.1f}") for name in found.total),
    )
    say("")
    say(
        f"{found.snapshot_count:,} windows with usage, "
        f"from {found.min_window_start} to {found.max_window_start}"
    )


def snapshot_json(each: UsageSnapshot) -> dict[str, Any]:
    return {
        "entity_id": each.entity_id,
        "resource": each.resource,
        "window_start": each.window_start,
        "window_end": each.window_end,
        "window_type": each.window_type,
        "counters": each.counters,
        "total_events": each.total_events,
    }


def summary_json(found: UsageSummary) -> dict[str, Any]:
    return {
        "snapshot_count": found.snapshot_count,
        "total": found.total,
        "average": found.average,
        "min_window_start": found.min_window_start,
        "max_window_start": found.max_window_start,
    }
