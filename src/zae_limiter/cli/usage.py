"""``zae-limiter usage``: who used how much, and when."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.consent import status
from zae_limiter.cli.groups import CommandGroup
from zae_limiter.cli.options import (
    check_entity,
    check_free_text,
    checked,
    how_many_option,
    resource_filter,
)
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import hint, show
from zae_limiter.cli.usage_output import (
    draw,
    nothing_found,
    print_csv,
    print_summary,
    print_summary_csv,
    print_windows,
    snapshot_json,
    summary_json,
)

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import Store
    from zae_limiter.cli.usage_source import UsageSource

MOST = 100_000  # windows that a picture is made of


@click.group(cls=CommandGroup)
def usage() -> None:
    """Who used how much, by the hour or the day.

    \b
    Example:
      zae-limiter usage list --entity-id key-7 --plot
    """


def _moment(value: str) -> str:
    from zae_limiter.models.timestamps import ms_from_iso

    ms_from_iso(value)
    return value


def _next_key(value: str) -> str:
    from zae_limiter.models.timestamps import ms_from_iso
    from zae_limiter.usage_report import DELIMITER, UsageQuery, page_of

    page_of((), UsageQuery.parse(None, None, None), 1, value)
    ms_from_iso(value.partition(DELIMITER)[0], "next_key")
    return value


def _filters(command: Any) -> Any:
    """Which windows, and how they are shown."""
    options = (
        click.option(
            "--entity-id", "-e", metavar="ENTITY", callback=check_entity, help="Only this entity."
        ),
        resource_filter,
        click.option(
            "--window",
            type=click.Choice(("hourly", "daily")),
            default="hourly",
            show_default=True,
            help="Length of the windows.",
        ),
        click.option(
            "--start",
            metavar="TIME",
            callback=checked(_moment),
            help="Windows from this ISO time on, such as 2026-01-31 or 2026-01-31T08:00Z.",
        ),
        click.option(
            "--end", metavar="TIME", callback=checked(_moment), help="Windows before this ISO time."
        ),
        click.option("--plot", is_flag=True, help="Draw it; needs the extra 'plot'."),
        click.option(
            "--output",
            type=click.Choice(("table", "json", "csv", "png", "svg")),
            default="table",
            show_default=True,
            help="For people, for programs, or a picture for a report (extra 'report').",
        ),
        click.option(
            "--file",
            type=click.Path(dir_okay=False),
            callback=check_free_text,
            help="Where the picture goes, with --output png or svg.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@usage.command("list")
@_filters
@how_many_option
@click.option(
    "--next-key",
    metavar="KEY",
    callback=checked(_next_key),
    help="Continue where the last page ended.",
)
@store_options
def list_usage(
    store: Store,
    entity_id: str | None,
    resource: str | None,
    window: str,
    start: str | None,
    end: str | None,
    plot: bool,
    output: str,
    file: str | None,
    limit: int,
    next_key: str | None,
) -> None:
    """List usage windows, oldest first.

    Net tokens of each limit: adjustments and refunds included, each token once. Of an
    entity, of a resource, or else of every resource that has limits of its own.

    \b
    Examples:
      zae-limiter usage list --namespace tenant-alpha
      zae-limiter usage list --entity-id key-7 --start 2026-01-31
      zae-limiter usage list --resource gpt-4 --window daily --plot
      zae-limiter usage list --resource gpt-4 --output csv > usage.csv
      zae-limiter usage list --resource gpt-4 --output svg --file usage.svg

    JSON: snapshots (each: entity_id, resource, window_start, window_end, window_type, counters,
    total_events), next_key (null at the end).
    """
    _check(start, end, plot, output, file)
    picture = plot or file is not None
    with store.open() as repository:
        source = _source(repository, entity_id, resource, window, start, end)
        with status("reading usage"):
            found, more = source.page(MOST if picture else limit, next_key)
        if not found and output != "json":
            hint("table", nothing_found(repository))
    if picture:
        draw(found, window, output, file, is_part=more is not None)
    elif output == "json":
        show(output, {"snapshots": [snapshot_json(each) for each in found], "next_key": more})
    elif output == "csv":
        print_csv(found)
    elif found:
        print_windows(found, window)
    if more is not None and not picture:
        hint(output, f"more: add --next-key {more!r}")


@usage.command("summary")
@_filters
@store_options
def summary(
    store: Store,
    entity_id: str | None,
    resource: str | None,
    window: str,
    start: str | None,
    end: str | None,
    plot: bool,
    output: str,
    file: str | None,
) -> None:
    """Show totals, and averages per window with usage.

    \b
    Examples:
      zae-limiter usage summary --entity-id key-7
      zae-limiter usage summary --resource gpt-4 --window daily --plot

    JSON: snapshot_count, total, average (both by limit), min_window_start, max_window_start.
    """
    _check(start, end, plot, output, file)
    with store.open() as repository:
        source = _source(repository, entity_id, resource, window, start, end)
        with status("reading usage"):
            found = source.summary()
        if not found.snapshot_count and output != "json":
            hint("table", nothing_found(repository))
        if plot or file is not None:
            windows, more = source.page(MOST)
            draw(windows, window, output, file, is_part=more is not None)
    if output == "json":
        show(output, summary_json(found))
    elif output == "csv":
        print_summary_csv(found)
    elif output == "table" and found.snapshot_count:
        print_summary(found, window, plot)


def _source(
    repository: SyncRepository,
    entity_id: str | None,
    resource: str | None,
    window: str,
    start: str | None,
    end: str | None,
) -> UsageSource:
    from zae_limiter.cli.usage_source import UsageSource, subjects_of

    subjects = subjects_of(repository, entity_id, resource)
    if not subjects:
        raise click.ClickException(
            "no resource has limits of its own here; say whose usage: --entity-id or --resource"
        )
    return UsageSource(repository, subjects, window, start, end)


def _check(start: str | None, end: str | None, plot: bool, output: str, file: str | None) -> None:
    from zae_limiter.models.timestamps import ms_from_iso

    if start and end and ms_from_iso(start) >= ms_from_iso(end):
        raise click.UsageError(f"--end {end} must be later than --start {start}")
    picture = output in ("png", "svg")
    if plot and output != "table":
        raise click.UsageError(f"--plot draws in the terminal; leave out --output {output}")
    if picture and file is None:
        raise click.UsageError(f"--output {output} needs --file, such as --file usage.{output}")
    if file is not None and not picture:
        raise click.UsageError("--file goes with --output png or svg")
    module, extra = ("plotext", "plot") if plot else ("matplotlib", "report")
    if (plot or picture) and importlib.util.find_spec(module) is None:
        raise click.ClickException(
            f"pictures need {module}: pip install 'zae-limiter[{extra}]', "
            "or use --output table, json or csv"
        )
