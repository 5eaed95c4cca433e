"""Usage drawn as charts and written as HTML pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zae_limiter_ops.cli.shared.console import make_console
from zae_limiter_ops.views.formatting import format_short_number

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.namespace_pages import Namespaces
    from zae_limiter_ops.cli.usage.options import UsageOptions
    from zae_limiter_ops.cli.usage.reads import LocatedRanking, Summaries, Windows


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


def write_usage_page(
    options: UsageOptions,
    windows: Windows,
    summaries: Summaries,
    namespaces: Namespaces,
    *,
    is_part: bool,
) -> None:
    """Write an HTML page with totals, charts and windows into the file, or on stdout."""
    from zae_limiter_ops.cli.usage.reads import summed, windows_in_full
    from zae_limiter_ops.reports.usage_html import usage_page

    if is_part:
        _print_part_hint(windows)
    totals = summed(summaries, windows) if namespaces.are_all else summaries[0].item
    shown = windows_in_full(windows, namespaces)
    page = usage_page(shown, options.window, totals, _place(namespaces))
    _write_page(page, options.file)


def write_ranking_page(
    ranking: LocatedRanking, namespaces: Namespaces, resource: str | None, file: str | None
) -> None:
    """Write an HTML page with the largest consumers into the file, or on stdout."""
    from zae_limiter_ops.cli.usage.reads import ranking_in_full
    from zae_limiter_ops.reports.usage_html import ranking_page

    place = _place(namespaces)
    subject = f"{resource} in {place}" if resource else place
    _write_page(ranking_page(subject, ranking_in_full(ranking, namespaces)), file)


def _place(namespaces: Namespaces) -> str:
    if namespaces.are_all:
        return "all namespaces"
    return f"namespace {namespaces.repository.namespace_name}"


def _print_part_hint(windows: Windows) -> None:
    click.echo(
        f"only the first {len(windows):,} windows are drawn; narrow the span: --start, --end",
        err=True,
    )


def _write_page(page: str, file: str | None) -> None:
    if file is None:
        click.echo(page, nl=False)
        return
    Path(file).write_text(page, encoding="utf-8")
    click.echo(f"wrote {file}", err=True)
