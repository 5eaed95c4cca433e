"""Usage as a table, as JSON, as CSV and as a chart."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.console import make_console
from zae_limiter.cli.formatting import format_short_number
from zae_limiter.cli.tables import print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.usage import UsageSnapshot, UsageSummary


def no_usage_hint(repository: SyncRepository) -> str:
    if repository.capabilities.usage_history:
        return "no usage is recorded for that"
    return "no usage is recorded for that; on DynamoDB the aggregator of a stack records it"


def draw_usage(
    windows: list[UsageSnapshot], window: str, output: str, file: str | None, *, is_part: bool
) -> None:
    """Draw a chart into ``file`` or on the terminal; nothing if there are no windows."""
    from zae_limiter.visualization import usage_series

    series = usage_series(windows, window)
    if is_part:
        click.echo(
            f"only the first {len(windows):,} windows are drawn; narrow them: --start, --end",
            err=True,
        )
    if not series:
        return
    if file is not None:
        from zae_limiter.visualization import save_chart

        save_chart(series, file, output)
        click.echo(f"wrote {file}", err=True)
    else:
        from zae_limiter.visualization import plot_chart

        console = make_console()
        ascii_only = console.options.ascii_only
        click.echo(plot_chart(series, console.width, format_short_number, ascii_only=ascii_only))


def _limit_names(windows: Sequence[UsageSnapshot]) -> list[str]:
    return sorted({name for snapshot in windows for name in snapshot.counters})


def _cell(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def print_windows(windows: list[UsageSnapshot], window: str) -> None:
    """Print a row for each window, with a column for each limit."""
    names = _limit_names(windows)
    print_table(
        (f"{window} window", "entity", "resource", *(f"{name}>" for name in names), "calls>"),
        (
            (
                snapshot.window_start.replace(":00:00Z", ":00Z"),
                snapshot.entity_id,
                snapshot.resource,
                *(_cell(snapshot.counters.get(name)) for name in names),
                f"{snapshot.total_events:,}",
            )
            for snapshot in windows
        ),
    )


def print_csv(windows: list[UsageSnapshot]) -> None:
    names = _limit_names(windows)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    fields = ("window_start", "window_end", "window_type", "entity_id", "resource", "total_events")
    writer.writerow((*fields, *names))
    for snapshot in windows:
        values = (getattr(snapshot, field) for field in fields)
        writer.writerow((*values, *(snapshot.counters.get(name, 0) for name in names)))


def print_summary_csv(summary: UsageSummary) -> None:
    total, average = summary.total, summary.average
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("limit", "total", "average"))
    writer.writerows((name, total[name], average[name]) for name in total)


def print_summary(summary: UsageSummary, window: str, *, after_chart: bool) -> None:
    if after_chart:
        print_line("")
    unit = "hour" if window == "hourly" else "day"
    total, average = summary.total, summary.average
    print_table(
        ("limit", "total>", f"average per {unit}>"),
        ((name, f"{total[name]:,}", f"{average[name]:,.1f}") for name in total),
    )
    print_line("")
    print_line(
        f"{summary.snapshot_count:,} windows with usage, "
        f"from {summary.min_window_start} to {summary.max_window_start}"
    )


def snapshot_json(snapshot: UsageSnapshot) -> dict[str, Any]:
    return {
        "entity_id": snapshot.entity_id,
        "resource": snapshot.resource,
        "window_start": snapshot.window_start,
        "window_end": snapshot.window_end,
        "window_type": snapshot.window_type,
        "counters": snapshot.counters,
        "total_events": snapshot.total_events,
    }


def summary_json(summary: UsageSummary) -> dict[str, Any]:
    return {
        "snapshot_count": summary.snapshot_count,
        "total": summary.total,
        "average": summary.average,
        "min_window_start": summary.min_window_start,
        "max_window_start": summary.max_window_start,
    }
