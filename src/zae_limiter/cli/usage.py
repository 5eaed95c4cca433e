"""``zae-limiter usage``: who used how much, and when."""

from __future__ import annotations

import csv
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.groups import CommandGroup
from zae_limiter.cli.options import check_entity, checked, resource_filter, store_options
from zae_limiter.cli.render import Glyphs, make_console, short_number
from zae_limiter.cli.tables import hint, print_table, say, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter.cli.store import Store
    from zae_limiter.models.usage import UsageSnapshot, UsageSummary

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
            help="Where the picture goes, with --output png or svg.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@usage.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many.")
@click.option("--next-key", metavar="KEY", help="Continue where the last page ended.")
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

    Net tokens of each limit: adjustments and refunds included, each token once.

    \b
    Examples:
      zae-limiter usage list --entity-id key-7 --start 2026-01-31
      zae-limiter usage list --resource gpt-4 --window daily --plot
      zae-limiter usage list --resource gpt-4 --output csv > usage.csv
      zae-limiter usage list --resource gpt-4 --output svg --file usage.svg

    JSON: snapshots (each: entity_id, resource, window_start, window_end, window_type, counters,
    total_events), next_key (null at the end).
    """
    _check(entity_id, resource, plot, output, file)
    picture = plot or file is not None
    with store.open() as repository:
        found, more = repository.get_usage_snapshots(
            entity_id, resource, window, start, end, MOST if picture else limit, next_key
        )
    if picture:
        _draw(found, window, output, file)
    elif output == "json":
        show(output, {"snapshots": [_snapshot_json(each) for each in found], "next_key": more})
    elif output == "csv":
        _print_csv(found)
    elif not found:
        hint(output, "no usage is recorded for that")
    else:
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
    _check(entity_id, resource, plot, output, file)
    with store.open() as repository:
        found = repository.get_usage_summary(entity_id, resource, window, start, end)
        if plot or file is not None:
            windows, _ = repository.get_usage_snapshots(
                entity_id, resource, window, start, end, MOST
            )
            _draw(windows, window, output, file)
    if output == "json":
        show(output, _summary_json(found))
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("limit", "total", "average"))
        writer.writerows((name, found.total[name], found.average[name]) for name in found.total)
    elif output == "table":
        _print_summary(found, window, plot)


# --- inside ----------------------------------------------------------------------------------


def _check(
    entity_id: str | None, resource: str | None, plot: bool, output: str, file: str | None
) -> None:
    if entity_id is None and resource is None:
        raise click.UsageError("say whose: --entity-id, --resource, or both")
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


def _draw(found: list[UsageSnapshot], window: str, output: str, file: str | None) -> None:
    from zae_limiter.visualization.series import usage_series

    series = usage_series(found, window)
    if not series:
        hint("table", "no usage is recorded for that")
    elif file is not None:
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


def _print_csv(found: list[UsageSnapshot]) -> None:
    names = _limit_names(found)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    fields = ("window_start", "window_end", "window_type", "entity_id", "resource", "total_events")
    writer.writerow((*fields, *names))
    for each in found:
        known = (getattr(each, field) for field in fields)
        writer.writerow((*known, *(each.counters.get(name, 0) for name in names)))


def _print_summary(found: UsageSummary, window: str, plotted: bool) -> None:
    if not found.snapshot_count:
        if not plotted:
            hint("table", "no usage is recorded for that")
        return
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


def _snapshot_json(each: UsageSnapshot) -> dict[str, Any]:
    return {
        "entity_id": each.entity_id,
        "resource": each.resource,
        "window_start": each.window_start,
        "window_end": each.window_end,
        "window_type": each.window_type,
        "counters": each.counters,
        "total_events": each.total_events,
    }


def _summary_json(found: UsageSummary) -> dict[str, Any]:
    return {
        "snapshot_count": found.snapshot_count,
        "total": found.total,
        "average": found.average,
        "min_window_start": found.min_window_start,
        "max_window_start": found.max_window_start,
    }
