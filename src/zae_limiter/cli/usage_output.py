"""Usage as a table, as JSON, as CSV, as a chart and as an HTML page."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.console import make_console
from zae_limiter.cli.formatting import count_of, format_short_number
from zae_limiter.cli.tables import print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter.cli.usage_options import UsageOptions
    from zae_limiter.models.usage import EntityUsage, UsageRanking, UsageSnapshot, UsageSummary

NO_USAGE = "no usage is recorded for that"
THROUGH = "_through_children"  # ends the names of columns of CSV


def draw_usage(
    windows: list[UsageSnapshot], window: str, output: str, file: str | None, *, is_part: bool
) -> None:
    """Draw a chart into ``file`` or on the terminal; nothing if there are no windows."""
    from zae_limiter.usage_series import usage_series

    series = usage_series(windows, window)
    if is_part:
        _print_part_hint(windows)
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


def print_page(
    options: UsageOptions, windows: list[UsageSnapshot], totals: UsageSummary, *, is_part: bool
) -> None:
    """Write an HTML page into the file, or on stdout."""
    from zae_limiter.usage_html import usage_page

    if is_part:
        _print_part_hint(windows)
    subject = " on ".join(name for name in (options.entity_id, options.resource) if name)
    page = usage_page(subject or "the namespace", windows, options.window, totals)
    _write_page(page, options.file)


def _print_part_hint(windows: list[UsageSnapshot]) -> None:
    click.echo(
        f"only the first {len(windows):,} windows are drawn; narrow them: --start, --end",
        err=True,
    )


def _write_page(page: str, file: str | None) -> None:
    if file is None:
        click.echo(page, nl=False)
        return
    Path(file).write_text(page, encoding="utf-8")
    click.echo(f"wrote {file}", err=True)


def _limit_names(usages: Sequence[UsageSnapshot | EntityUsage]) -> list[str]:
    return sorted({name for usage in usages for name in usage.counters})


def _cell(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _through_children(usages: Sequence[UsageSnapshot | EntityUsage]) -> list[tuple[str, ...]]:
    """Return a last cell for each row, where anything came through children; else none."""
    from zae_limiter.visualization import through_children_text

    texts = [through_children_text(usage.through_children) for usage in usages]
    return [(text,) if any(texts) else () for text in texts]


def print_windows(windows: list[UsageSnapshot], window: str) -> None:
    """Print a row for each window, with a column for each limit."""
    names = _limit_names(windows)
    last_cells = _through_children(windows)
    heads = (f"{window} window", "entity", "resource", *(f"{name}>" for name in names))
    print_table(
        (*heads, "calls>", "rejected>", *(["through children"] if last_cells[0] else [])),
        (
            (
                snapshot.window_start.replace(":00:00Z", ":00Z"),
                snapshot.entity_id,
                snapshot.resource,
                *(_cell(snapshot.counters.get(name)) for name in names),
                f"{snapshot.total_events:,}",
                f"{snapshot.rejected:,}",
                *last,
            )
            for snapshot, last in zip(windows, last_cells, strict=True)
        ),
    )


def print_csv(windows: list[UsageSnapshot]) -> None:
    names = _limit_names(windows)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    fields = ("window_start", "window_end", "window_type", "entity_id", "resource", "total_events")
    writer.writerow((*fields, *names, "rejected", *(f"{name}{THROUGH}" for name in names)))
    for snapshot in windows:
        writer.writerow(
            (
                *(getattr(snapshot, field) for field in fields),
                *(snapshot.counters.get(name, 0) for name in names),
                snapshot.rejected,
                *(snapshot.through_children.get(name, 0) for name in names),
            )
        )


def print_summary_csv(summary: UsageSummary) -> None:
    total, average, through = summary.total, summary.average, summary.through_children
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("limit", "total", "average", "through_children"))
    writer.writerows((name, total[name], average[name], through.get(name, 0)) for name in total)


def print_summary(
    summary: UsageSummary, window: str, *, after_chart: bool, of_several: bool
) -> None:
    if after_chart:
        print_line("")
    unit = {"hourly": "hour", "daily": "day", "monthly": "month"}[window]
    total, average, through = summary.total, summary.average, summary.through_children
    has_children = any(through.values())
    print_table(
        (
            "limit",
            "total>",
            *(["through children>"] if has_children else []),
            f"average per {unit}>",
        ),
        (
            (
                name,
                f"{total[name]:,}",
                *([f"{through.get(name, 0):,}"] if has_children else []),
                f"{average[name]:,.1f}",
            )
            for name in total
        ),
    )
    print_line("")
    print_line(
        f"{count_of(summary.window_count, unit)} with usage, "
        f"from {summary.min_window_start} to {summary.max_window_start}"
    )
    if summary.rejected:
        print_line(f"{count_of(summary.rejected, 'call')} rejected (approximate)")
    if has_children and of_several:
        print_line(
            "the total counts each token once; what parents used through children is not in it"
        )


# --- the largest consumers -------------------------------------------------------------------


def print_ranking(
    ranking: UsageRanking, resource: str | None, file: str | None, *, as_page: bool
) -> None:
    """Print consumers and parents as tables, or as an HTML page."""
    if as_page:
        from zae_limiter.usage_html import ranking_page

        _write_page(ranking_page(resource or "the namespace", ranking), file)
        return
    names = _limit_names([*ranking.consumers, *ranking.parents])
    if ranking.consumers:
        _print_entities("entity", ranking.consumers, names)
    if ranking.parents:
        if ranking.consumers:
            print_line("")
        _print_entities("parent", ranking.parents, names)


def _print_entities(kind: str, usages: list[EntityUsage], names: list[str]) -> None:
    last_cells = _through_children(usages)
    heads = ("#>", kind, *(f"{name}>" for name in names), "calls>", "rejected>")
    print_table(
        (*heads, *(["through children"] if last_cells[0] else [])),
        (
            (
                str(rank),
                usage.entity_id,
                *(_cell(usage.counters.get(name)) for name in names),
                f"{usage.total_events:,}",
                f"{usage.rejected:,}",
                *last,
            )
            for rank, (usage, last) in enumerate(zip(usages, last_cells, strict=True), 1)
        ),
    )


def print_ranking_csv(ranking: UsageRanking) -> None:
    names = _limit_names([*ranking.consumers, *ranking.parents])
    writer = csv.writer(sys.stdout, lineterminator="\n")
    through = (f"{name}{THROUGH}" for name in names)
    writer.writerow(("kind", "rank", "entity_id", "total_events", *names, "rejected", *through))
    for kind, usages in (("consumer", ranking.consumers), ("parent", ranking.parents)):
        for rank, usage in enumerate(usages, 1):
            writer.writerow(
                (
                    kind,
                    rank,
                    usage.entity_id,
                    usage.total_events,
                    *(usage.counters.get(name, 0) for name in names),
                    usage.rejected,
                    *(usage.through_children.get(name, 0) for name in names),
                )
            )


# --- JSON ------------------------------------------------------------------------------------


def ranking_json(ranking: UsageRanking) -> dict[str, Any]:
    return asdict(ranking)


def snapshot_json(snapshot: UsageSnapshot) -> dict[str, Any]:
    return {
        "entity_id": snapshot.entity_id,
        "resource": snapshot.resource,
        "window_start": snapshot.window_start,
        "window_end": snapshot.window_end,
        "window_type": snapshot.window_type,
        "counters": snapshot.counters,
        "total_events": snapshot.total_events,
        "through_children": snapshot.through_children,
        "rejected": snapshot.rejected,
    }


def summary_json(summary: UsageSummary) -> dict[str, Any]:
    return {
        "snapshot_count": summary.snapshot_count,
        "window_count": summary.window_count,
        "total": summary.total,
        "average": summary.average,
        "through_children": summary.through_children,
        "rejected": summary.rejected,
        "min_window_start": summary.min_window_start,
        "max_window_start": summary.max_window_start,
    }
