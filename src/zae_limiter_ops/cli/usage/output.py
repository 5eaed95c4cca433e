"""Usage as a table, as JSON, as CSV, as a chart and as an HTML page."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.console import make_console
from zae_limiter_ops.cli.shared.formatting import count_of, format_short_number
from zae_limiter_ops.cli.shared.tables import print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zae_limiter.models.usage import EntityUsage, UsageSnapshot, UsageSummary
    from zae_limiter_ops.cli.shared.namespace_pages import InNamespace, Namespaces
    from zae_limiter_ops.cli.usage.options import UsageOptions
    from zae_limiter_ops.cli.usage.reads import LocatedRanking, Summaries, Windows

NO_USAGE = "no usage is recorded for that"
THROUGH = "_through_children"  # ends the names of columns of CSV
FORMULA_STARTS = ("=", "+", "-", "@")  # of cells that spreadsheets compute


def draw_usage(
    options: UsageOptions, windows: Windows, namespaces: Namespaces, *, is_part: bool
) -> None:
    """Draw a chart into the file or on the terminal; nothing if there are no windows."""
    from zae_limiter_ops.cli.usage.reads import windows_in_full
    from zae_limiter_ops.reports.usage_series import usage_chart
    from zae_limiter_ops.reports.visualization import (
        LARGEST_IN_COLOUR,
        LARGEST_IN_TERMINAL,
        plot_chart,
        save_chart,
    )

    if is_part:
        _print_part_hint(windows)
    largest = LARGEST_IN_TERMINAL if options.file is None else LARGEST_IN_COLOUR
    shown = windows_in_full(windows, namespaces)
    chart = usage_chart(shown, options.window, largest, _place(namespaces))
    if chart is None:
        return
    if options.file is not None:
        save_chart(chart, options.file, options.output)
        click.echo(f"wrote {options.file}", err=True)
        return
    console = make_console()
    ascii_only = console.options.ascii_only
    click.echo(plot_chart(chart, console.width, format_short_number, ascii_only=ascii_only))


def print_page(
    options: UsageOptions,
    windows: Windows,
    summaries: Summaries,
    namespaces: Namespaces,
    *,
    is_part: bool,
) -> None:
    """Write an HTML page into the file, or on stdout."""
    from zae_limiter_ops.cli.usage.reads import summed, windows_in_full
    from zae_limiter_ops.reports.usage_html import usage_page

    if is_part:
        _print_part_hint(windows)
    totals = summed(summaries, windows) if namespaces.are_all else summaries[0].item
    shown = windows_in_full(windows, namespaces)
    page = usage_page(shown, options.window, totals, _place(namespaces))
    _write_page(page, options.file)


def _place(namespaces: Namespaces) -> str:
    if namespaces.are_all:
        return "all namespaces"
    return f"namespace {namespaces.repository.namespace_name}"


def _print_part_hint(windows: Windows) -> None:
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
    from zae_limiter_ops.reports.visualization import through_children_text

    texts = [through_children_text(usage.through_children) for usage in usages]
    return [(text,) if any(texts) else () for text in texts]


def print_windows(windows: Windows, window: str, namespaces: Namespaces) -> None:
    """Print a row for each window, with a column for each limit."""
    snapshots = [snapshot for _, snapshot in windows]
    names = _limit_names(snapshots)
    last_cells = _through_children(snapshots)
    heads = (f"{window} window", "entity", "resource", *(f"{name}>" for name in names))
    print_table(
        (
            *namespaces.head,
            *heads,
            "calls>",
            "rejected>",
            "waited>",
            *(["through children"] if last_cells[0] else []),
        ),
        (
            (
                *namespaces.cell(namespace),
                snapshot.window_start.replace(":00:00Z", ":00Z"),
                snapshot.entity_id,
                snapshot.resource,
                *(_cell(snapshot.counters.get(name)) for name in names),
                f"{snapshot.total_events:,}",
                f"{snapshot.rejected:,}",
                f"{snapshot.waited:,}",
                *last,
            )
            for (namespace, snapshot), last in zip(windows, last_cells, strict=True)
        ),
    )


def print_csv(windows: Windows, namespaces: Namespaces) -> None:
    names = _limit_names([snapshot for _, snapshot in windows])
    fields = ("window_start", "window_end", "window_type", "entity_id", "resource", "total_events")
    through = (f"{name}{THROUGH}" for name in names)
    _write_csv(
        (*namespaces.head, *fields, *names, "rejected", "waited", *through),
        (
            (
                *namespaces.cell(namespace),
                *(getattr(snapshot, field) for field in fields),
                *(snapshot.counters.get(name, 0) for name in names),
                snapshot.rejected,
                snapshot.waited,
                *(snapshot.through_children.get(name, 0) for name in names),
            )
            for namespace, snapshot in windows
        ),
    )


def print_summary_csv(summaries: Summaries, namespaces: Namespaces) -> None:
    _write_csv(
        (*namespaces.head, "limit", "total", "average", "through_children"),
        (
            (
                *namespaces.cell(namespace),
                name,
                total,
                summary.average[name],
                summary.through_children.get(name, 0),
            )
            for namespace, summary in summaries
            for name, total in summary.total.items()
        ),
    )


def _write_csv(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_neutral(cell) for cell in row] for row in rows)


def _neutral(cell: object) -> object:
    """Return a text that no spreadsheet computes: one that looks like a formula gets a quote.

    Callers choose the ids of entities, so an id may be a formula. Numbers stay numbers.
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def print_summaries(summaries: Summaries, options: UsageOptions) -> None:
    """Print the totals of several namespaces, and their sums."""
    from zae_limiter.models.usage import WindowType
    from zae_limiter_ops.cli.usage.reads import added_up

    if options.plot:
        print_line("")
    unit = WindowType(options.window).unit
    has_children = any(any(each.through_children.values()) for _, each in summaries)
    print_table(
        (
            "namespace",
            "limit",
            "total>",
            *(["through children>"] if has_children else []),
            f"average per {unit}>",
            f"{unit}s with usage>",
        ),
        (
            (
                namespace,
                name,
                f"{total:,}",
                *([f"{summary.through_children.get(name, 0):,}"] if has_children else []),
                f"{summary.average[name]:,.1f}",
                f"{summary.window_count:,}",
            )
            for namespace, summary in summaries
            for name, total in summary.total.items()
        ),
    )
    sums = added_up(summaries)
    totals = (f"{name} {total:,}" for name, total in sorted(sums.total.items()))
    print_line("")
    print_line(f"together: {', '.join(totals)}")
    _print_calls(sums.rejected, sums.waited)


def print_summary(summary: UsageSummary, options: UsageOptions) -> None:
    """Print the totals of one namespace that has usage."""
    from zae_limiter.models.timestamps import iso_from_ms
    from zae_limiter.models.usage import WindowType
    from zae_limiter_ops.reports.usage_series import next_start

    if options.plot:
        print_line("")
    window = WindowType(options.window)
    unit = window.unit
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
    assert summary.max_window_start is not None, "there is usage"
    end = next_start(datetime.fromisoformat(summary.max_window_start), window)
    print_line("")
    print_line(
        f"{count_of(summary.window_count, unit)} with usage, "
        f"from {summary.min_window_start} to {iso_from_ms(int(end.timestamp()) * 1000)}"
    )
    _print_calls(summary.rejected, summary.waited)
    if has_children and options.entity_id is None:
        print_line(
            "the total counts each token once; what parents used through children is not in it"
        )


def _print_calls(rejected: int, waited: int) -> None:
    if rejected:
        print_line(f"{count_of(rejected, 'call')} rejected (approximate)")
    if waited:
        print_line(f"{count_of(waited, 'call')} waited (approximate)")


# --- the largest consumers -------------------------------------------------------------------


def print_ranking(
    ranking: LocatedRanking,
    namespaces: Namespaces,
    resource: str | None,
    file: str | None,
    *,
    as_page: bool,
) -> None:
    """Print consumers and parents as tables, or as an HTML page."""
    if as_page:
        from zae_limiter_ops.cli.usage.reads import ranking_in_full
        from zae_limiter_ops.reports.usage_html import ranking_page

        shown, place = ranking_in_full(ranking, namespaces), _place(namespaces)
        _write_page(ranking_page(f"{resource} in {place}" if resource else place, shown), file)
        return
    names = _limit_names([usage for _, usage in (*ranking.consumers, *ranking.parents)])
    if ranking.consumers:
        _print_entities("entity", ranking.consumers, names, namespaces)
    if ranking.parents:
        if ranking.consumers:
            print_line("")
        _print_entities("parent", ranking.parents, names, namespaces)


def _print_entities(
    kind: str, located: list[InNamespace[EntityUsage]], names: list[str], namespaces: Namespaces
) -> None:
    last_cells = _through_children([usage for _, usage in located])
    names_of_limits = (f"{name}>" for name in names)
    counts = ("calls>", "rejected>", "waited>")
    heads = ("#>", *namespaces.head, kind, *names_of_limits, *counts)
    print_table(
        (*heads, *(["through children"] if last_cells[0] else [])),
        (
            (
                str(rank),
                *namespaces.cell(namespace),
                usage.entity_id,
                *(_cell(usage.counters.get(name)) for name in names),
                f"{usage.total_events:,}",
                f"{usage.rejected:,}",
                f"{usage.waited:,}",
                *last,
            )
            for rank, ((namespace, usage), last) in enumerate(
                zip(located, last_cells, strict=True), 1
            )
        ),
    )


def print_ranking_csv(ranking: LocatedRanking, namespaces: Namespaces) -> None:
    names = _limit_names([usage for _, usage in (*ranking.consumers, *ranking.parents)])
    through = (f"{name}{THROUGH}" for name in names)
    kinds = (("consumer", ranking.consumers), ("parent", ranking.parents))
    _write_csv(
        (
            *("kind", "rank", *namespaces.head, "entity_id", "total_events"),
            *(*names, "rejected", "waited", *through),
        ),
        (
            (
                kind,
                rank,
                *namespaces.cell(namespace),
                usage.entity_id,
                usage.total_events,
                *(usage.counters.get(name, 0) for name in names),
                usage.rejected,
                usage.waited,
                *(usage.through_children.get(name, 0) for name in names),
            )
            for kind, located in kinds
            for rank, (namespace, usage) in enumerate(located, 1)
        ),
    )


# --- JSON ------------------------------------------------------------------------------------


def ranking_json(ranking: LocatedRanking) -> dict[str, Any]:
    def entities(located: list[InNamespace[EntityUsage]]) -> list[dict[str, Any]]:
        return [{"namespace": namespace, **asdict(usage)} for namespace, usage in located]

    return {
        "by": ranking.by,
        "start_time": ranking.start_time,
        "end_time": ranking.end_time,
        "consumers": entities(ranking.consumers),
        "parents": entities(ranking.parents),
    }


def snapshot_json(namespace: str, snapshot: UsageSnapshot) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "entity_id": snapshot.entity_id,
        "resource": snapshot.resource,
        "window_start": snapshot.window_start,
        "window_end": snapshot.window_end,
        "window_type": snapshot.window_type,
        "counters": snapshot.counters,
        "total_events": snapshot.total_events,
        "through_children": snapshot.through_children,
        "rejected": snapshot.rejected,
        "waited": snapshot.waited,
        "rejected_through_children": snapshot.rejected_through_children,
        "rejected_amounts": snapshot.rejected_amounts,
    }


def summaries_json(summaries: Summaries, namespaces: Namespaces) -> dict[str, Any]:
    if not namespaces.are_all:
        return _summary_json(*summaries[0])
    return {"namespaces": [_summary_json(*each) for each in summaries]}


def _summary_json(namespace: str, summary: UsageSummary) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "snapshot_count": summary.snapshot_count,
        "window_count": summary.window_count,
        "total": summary.total,
        "average": summary.average,
        "through_children": summary.through_children,
        "rejected": summary.rejected,
        "waited": summary.waited,
        "min_window_start": summary.min_window_start,
        "max_window_start": summary.max_window_start,
    }
