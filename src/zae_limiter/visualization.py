"""Usage as text tables, charts in the terminal (plotext), and PNG or SVG files (matplotlib).

Both libraries are extras (``plot`` and ``report``), so they are imported when a chart is drawn.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.usage import UsageSnapshot
from zae_limiter.usage_series import UsageSeries, axis_ticks, labelled_windows, usage_series

# --- formats ---------------------------------------------------------------------------------


class UsageFormatter(StrEnum):
    """How ``format_usage_snapshots`` shows usage."""

    TABLE = "table"
    PLOT = "plot"


def format_usage_snapshots(
    snapshots: Iterable[UsageSnapshot],
    formatter: UsageFormatter | str = UsageFormatter.TABLE,
    *,
    width: int = 100,
    ascii_only: bool = False,
) -> str:
    """Return usage as a text: a table of all windows, or a bar chart for each limit.

    A chart needs plotext; it shows the windows of the type that the first snapshot has.
    """
    if formatter not in tuple(UsageFormatter):
        names = ", ".join(UsageFormatter)
        raise ValidationError("formatter", formatter, f"must be one of {names}")
    listed = list(snapshots)
    if not listed:
        return "no usage"
    if formatter == UsageFormatter.TABLE:
        return _table(listed)
    series = usage_series(listed, listed[0].window_type)
    return plot_chart(series, width, "{:,}".format, ascii_only=ascii_only)


def _table(snapshots: Sequence[UsageSnapshot]) -> str:
    """Return one line per window; amounts are aligned to the right."""
    names = sorted({name for snapshot in snapshots for name in snapshot.counters})
    header = ["window", "type", "entity", "resource", *names, "events", "rejected"]
    has_children = any(any(snapshot.through_children.values()) for snapshot in snapshots)
    if has_children:
        header.append("through children")
    rows = [
        [
            snapshot.window_start,
            str(snapshot.window_type),
            snapshot.entity_id,
            snapshot.resource,
            *(f"{snapshot.counters.get(name, 0):,}" for name in names),
            f"{snapshot.total_events:,}",
            f"{snapshot.rejected:,}",
            *([through_children_text(snapshot.through_children)] if has_children else ()),
        ]
        for snapshot in snapshots
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    texts = 4  # columns before the amounts
    return "\n".join(
        "  ".join(
            cell.ljust(size) if index < texts else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [header, *rows]
    )


def through_children_text(through_children: Mapping[str, int]) -> str:
    """Return what came through children in one cell of a table: ``rpm 3, tpm 120``."""
    used = {name: amount for name, amount in sorted(through_children.items()) if amount}
    return ", ".join(f"{name} {amount:,}" for name, amount in used.items())


# --- in the terminal -------------------------------------------------------------------------

PANEL_LINES = 13  # two panels fit a terminal of 30 lines
MIN_WIDTH = 40  # narrower panels have no room for bars and labels
Y_TICKS = 5  # a label on every second or third line of a panel
LABEL_COLUMNS = 13  # "01-31 08:00" and a gap
EDGE_COLUMNS = 5  # by which plotext moves labels at the edges inwards
MIN_WINDOWS = 12  # the axis has room for this many, so that a single bar does not fill the panel
TO_ASCII = str.maketrans("─│┌┐└┘┤┬├┴┼", "-|++++|+|++")


def plot_chart(
    series: Sequence[UsageSeries],
    width: int,
    format_value: Callable[[int], str],
    *,
    ascii_only: bool,
) -> str:
    """Return a text of at most ``width`` columns, with a panel for each limit.

    Limits have scales of their own; ``format_value`` formats the numbers of the axis.
    """
    panels = (_panel(limit, max(MIN_WIDTH, width), format_value, ascii_only) for limit in series)
    return "\n\n".join(panels)


def _panel(
    series: UsageSeries, width: int, format_value: Callable[[int], str], ascii_only: bool
) -> str:
    plotext = importlib.import_module("plotext")
    canvas = plotext.figure
    canvas.clear()
    canvas.theme("colorless")
    canvas.plot_size(width, PANEL_LINES)
    count = len(series.totals)
    canvas.draw(_bars(canvas, series, width, "#" if ascii_only else "hd"))
    canvas.title(series.title)
    canvas.label(f"{series.unit} (UTC)", "x")
    ticks = axis_ticks(series, Y_TICKS)
    canvas.ruler("y").lim(ticks[0], ticks[-1])
    canvas.ruler("y").ticks(ticks, [format_value(tick) for tick in ticks])
    margin = max(0, MIN_WINDOWS - count) / 2 + 0.5
    canvas.ruler("x").lim(-margin, count - 1 + margin)
    labelled = labelled_windows(series, _max_labels(count, width))
    canvas.ruler("x").ticks(labelled, [series.label(index) for index in labelled])
    text: str = plotext.uncolorize(str(canvas.build()))
    canvas.clear()
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    shown = "\n".join(lines)
    return shown.translate(TO_ASCII) if ascii_only else shown


def _bars(canvas: Any, series: UsageSeries, width: int, marker: str) -> Any:
    """Return bars, with gaps if there is room; a filled line if bars would be too thin and slow."""
    count, totals = len(series.totals), list(series.totals)
    if count > width:
        return canvas.signal(list(range(count)), totals, marker=marker).fillx()
    gap = 0.2 if count <= width // 4 else 0.0
    return canvas.bar(list(range(count)), totals, marker=marker, width=1 - gap)


def _max_labels(count: int, width: int) -> int:
    if count < MIN_WINDOWS:  # the axis is wider than the bars, which are in its middle
        return width * count // MIN_WINDOWS // LABEL_COLUMNS + 1
    return max(1, width // (LABEL_COLUMNS + EDGE_COLUMNS))


# --- in a file -------------------------------------------------------------------------------

# About the width of a landscape page, at the resolution of a screen.
INCHES_WIDE, INCHES_PER_PANEL = 10.0, 2.6
AXIS_LABEL_INCHES = 0.4  # below the last panel
DOTS_PER_INCH = 120
# Okabe and Ito's palette, which people with any kind of colour blindness can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def save_chart(series: Sequence[UsageSeries], file: str, kind: str) -> None:
    """Write a file with a panel for each limit; ``kind`` is ``png`` or ``svg``."""
    figures = importlib.import_module("matplotlib.figure")
    size = (INCHES_WIDE, INCHES_PER_PANEL * len(series) + AXIS_LABEL_INCHES)
    figure = figures.Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(series), sharex=True, squeeze=False)[:, 0]
    for index, (limit, panel) in enumerate(zip(series, panels, strict=True)):
        _draw(panel, limit, COLOURS[index % len(COLOURS)])
    panels[-1].set_xlabel(f"{series[0].unit} (UTC)")
    figure.align_ylabels()
    figure.savefig(file, format=kind, dpi=DOTS_PER_INCH)


def _draw(panel: Any, series: UsageSeries, colour: str) -> None:
    dates = importlib.import_module("matplotlib.dates")
    ticker = importlib.import_module("matplotlib.ticker")
    day = timedelta(days=1)
    widths = [0.9 * ((series.end(at) - start) / day) for at, start in enumerate(series.starts)]
    panel.bar(series.starts, series.totals, width=widths, align="edge", color=colour)
    panel.set_title(series.title, loc="left", fontsize=11)
    panel.set_ylabel(series.quantity)
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    panel.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    panel.set_axisbelow(True)
    panel.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
