"""Usage as text tables, charts in the terminal (plotext), and PNG or SVG files (matplotlib).

Both libraries are extras (``plot`` and ``report``), so they are imported when a chart is drawn.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from textwrap import wrap
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.extras import needs
from zae_limiter.models.usage import UsageSnapshot
from zae_limiter_ops.reports.usage_columns import (
    call_columns,
    limit_columns,
    through_children_columns,
)
from zae_limiter_ops.reports.usage_series import (
    LABEL_LENGTH,
    Amount,
    UsageChart,
    UsagePart,
    UsageSeries,
    axis_ticks,
    labelled_windows,
    shortened,
    usage_chart,
)
from zae_limiter_ops.views.columns import Column, PlainTable, as_text, cells_of, titles_of

# --- formats ---------------------------------------------------------------------------------


class UsageFormatter(StrEnum):
    """The forms of ``format_usage_snapshots``."""

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

    A chart needs plotext. It shows the windows that have the type of the first snapshot, as stacked
    bars: the largest entities first, and the rest on top of them.
    """
    if formatter not in tuple(UsageFormatter):
        names = ", ".join(UsageFormatter)
        raise ValidationError("formatter", formatter, f"must be one of {names}")
    listed = list(snapshots)
    if not listed:
        return "no usage"
    if formatter == UsageFormatter.TABLE:
        return _table(listed)
    chart = usage_chart(listed, listed[0].window_type, LARGEST_IN_TERMINAL)
    assert chart is not None  # there is a snapshot of that type
    return plot_chart(chart, width, as_text, ascii_only=ascii_only)


def _table(snapshots: Sequence[UsageSnapshot]) -> str:
    """Return one line per window; amounts are aligned to the right."""
    columns: list[Column[UsageSnapshot]] = [
        Column(title="window", value=lambda window: window.window_start),
        Column(title="type", value=lambda window: window.window_type),
        Column(title="entity", value=lambda window: window.entity_id),
        Column(title="resource", value=lambda window: window.resource),
        *limit_columns(snapshots),
        Column(title="events>", value=lambda window: window.total_events),
        *call_columns(snapshots),
        *through_children_columns(snapshots),
    ]
    rows = [cells_of(columns, snapshot) for snapshot in snapshots]
    table = PlainTable(titles_of(columns), rows)
    return "\n".join((table.head, *map(table.line, rows)))


# --- in the terminal -------------------------------------------------------------------------

PANEL_LINES = 13  # two panels fit a terminal of 30 lines
MIN_WIDTH = 40  # narrower panels have no room for bars and labels
Y_TICKS = 5  # a label on every second or third line of a panel
LABEL_COLUMNS = 13  # "01-31 08:00" and a gap
EDGE_COLUMNS = 5  # plotext moves labels at the edges inwards by so many columns
MIN_WINDOWS = 12  # the axis has room for this many, so that a single bar does not fill the panel
# The shades of the parts of a stack; the last shade stands for the rest.
SHADES, ASCII_SHADES = "█▓▒░", "#=+."
LARGEST_IN_TERMINAL = len(SHADES) - 1
LEGEND_COLUMNS = 24  # the length of a long id: three entries fit a line of 100
TO_ASCII = str.maketrans("─│┌┐└┘┤┬├┴┼", "-|++++|+|++")


def plot_chart(
    chart: UsageChart,
    width: int,
    format_value: Callable[[Amount], str],
    *,
    ascii_only: bool,
) -> str:
    """Return a text of at most ``width`` columns: headline, legend, and a panel for each limit.

    Each limit has a scale of its own; ``format_value`` formats the numbers of the axis.
    """
    width = max(MIN_WIDTH, width)
    ellipsis = "..." if ascii_only else "…"
    texts = [*wrap(chart.headline, width)]
    markers = _markers(chart.parts, ascii_only)
    if len(markers) > 1:
        entries = [
            f"{marker * 2} {shortened(part.label, LEGEND_COLUMNS, ellipsis)}"
            for part, marker in zip(chart.parts, markers, strict=True)
        ]
        texts += _lines_of(entries, width)
    panels = (_panel(each, width, format_value, markers, ascii_only) for each in chart.series)
    return "\n\n".join(("\n".join(texts), *panels))


def _markers(parts: Sequence[UsagePart], ascii_only: bool) -> list[str]:
    """Return the characters that draw the parts."""
    if len(parts) == 1:
        return ["#" if ascii_only else "hd"]  # blocks of a quarter of a character
    shades = ASCII_SHADES if ascii_only else SHADES
    return [shades[-1] if part.is_rest else shades[at] for at, part in enumerate(parts)]


def _lines_of(entries: Iterable[str], width: int) -> list[str]:
    """Return the entries of a legend in lines of at most ``width`` columns."""
    lines: list[str] = []
    for entry in entries:
        if lines and len(lines[-1]) + len(entry) + 3 <= width:
            lines[-1] += f"   {entry}"
        else:
            lines.append(entry)
    return lines


def _panel(
    series: UsageSeries,
    width: int,
    format_value: Callable[[Amount], str],
    markers: list[str],
    ascii_only: bool,
) -> str:
    plotext = _imported("plotext", "plot")
    canvas = plotext.figure
    canvas.clear()
    canvas.theme("colorless")
    canvas.plot_size(width, PANEL_LINES)
    count = len(series.starts)
    # A bar reaches down to zero, so the upper parts are drawn first.
    for bars, marker in reversed(list(zip(series.stacks(), markers, strict=True))):
        canvas.draw(_bars(canvas, [top for _, top in bars], width, marker))
    canvas.title(series.title)
    canvas.label(f"{series.unit} (UTC)", "x")
    ticks = axis_ticks(series, Y_TICKS)
    places = [float(tick) if isinstance(tick, Decimal) else tick for tick in ticks]
    canvas.ruler("y").lim(places[0], places[-1])
    canvas.ruler("y").ticks(places, [format_value(tick) for tick in ticks])
    margin = max(0, MIN_WINDOWS - count) / 2 + 0.5
    canvas.ruler("x").lim(-margin, count - 1 + margin)
    labelled = labelled_windows(series, _max_labels(count, width))
    canvas.ruler("x").ticks(labelled, [series.label(index) for index in labelled])
    text: str = plotext.uncolorize(str(canvas.build()))
    canvas.clear()
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    shown = "\n".join(lines)
    return shown.translate(TO_ASCII) if ascii_only else shown


def _bars(canvas: Any, tops: list[float], width: int, marker: str) -> Any:
    """Return bars, with gaps if there is room; or a filled line for very many windows."""
    count = len(tops)
    if count > width:
        return canvas.signal(list(range(count)), tops, marker=marker).fillx()
    gap = 0.2 if count <= width // 4 else 0.0
    return canvas.bar(list(range(count)), tops, marker=marker, width=1 - gap)


def _max_labels(count: int, width: int) -> int:
    if count < MIN_WINDOWS:  # the axis is wider than the bars, which are in its middle
        return width * count // MIN_WINDOWS // LABEL_COLUMNS + 1
    return max(1, width // (LABEL_COLUMNS + EDGE_COLUMNS))


# --- in a file -------------------------------------------------------------------------------

# About the width of a landscape page, at the resolution of a screen.
INCHES_WIDE, INCHES_PER_PANEL = 10.0, 2.6
HEAD_INCHES = 1.2  # headline, legend, and the label below the last panel
HEADLINE_LENGTH = 100  # characters of a line, at the size of the headline
LEGEND_ENTRIES = 4  # in a line
DOTS_PER_INCH = 120
# Okabe and Ito's palette, which people with any kind of colour blindness can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
REST_COLOUR = "#B0B0B0"
LARGEST_IN_COLOUR = len(COLOURS)
MAX_BARS = 400  # more windows are drawn as areas: bars would be thinner than a dot, and slow


def colours(parts: Sequence[UsagePart]) -> list[str]:
    """Return the colours of parts; the rest is grey."""
    return [REST_COLOUR if part.is_rest else COLOURS[at] for at, part in enumerate(parts)]


def save_chart(chart: UsageChart, file: str, kind: str) -> None:
    """Write a file with a headline, a legend and a panel for each limit; ``png`` or ``svg``."""
    figures = _imported("matplotlib.figure", "report")
    size = (INCHES_WIDE, INCHES_PER_PANEL * len(chart.series) + HEAD_INCHES)
    figure = figures.Figure(figsize=size, layout="constrained")
    headline = "\n".join(wrap(chart.headline, HEADLINE_LENGTH))
    figure.suptitle(headline, fontsize=13, x=0.01, ha="left", parse_math=False)
    panels = figure.subplots(len(chart.series), sharex=True, squeeze=False)[:, 0]
    drawn = [_draw(panel, series) for panel, series in zip(panels, chart.series, strict=True)]
    if len(chart.parts) > 1:
        _add_legend(figure, drawn[0], chart.parts)
    panels[-1].set_xlabel(f"{chart.series[0].unit} (UTC)")
    figure.align_ylabels()
    with warnings.catch_warnings():
        # An id in a script that the font lacks is drawn as boxes; the chart is readable.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(file, format=kind, dpi=DOTS_PER_INCH)


def _imported(name: str, extra: str) -> Any:
    """Import a module of a library for charts; the error of a missing one says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(needs("a chart", name.partition(".")[0], extra)) from error


def _add_legend(figure: Any, handles: list[Any], parts: Sequence[UsagePart]) -> None:
    # Ids are set afterwards: a legend leaves out labels that begin with an underscore.
    numbers = [str(number) for number in range(len(parts))]
    legend = figure.legend(
        handles, numbers, loc="outside lower left", ncols=LEGEND_ENTRIES, frameon=False, fontsize=9
    )
    for text, part in zip(legend.get_texts(), parts, strict=True):
        text.set_parse_math(False)
        text.set_text(shortened(part.label, LABEL_LENGTH))


def _draw(panel: Any, series: UsageSeries) -> list[Any]:
    """Draw the stacks; return a drawn shape of each part, for the legend."""
    dates = importlib.import_module("matplotlib.dates")
    ticker = importlib.import_module("matplotlib.ticker")
    day = timedelta(days=1)
    ends = [series.end(at) for at in range(len(series.starts))]
    lengths = [(end - start) / day for start, end in zip(series.starts, ends, strict=True)]
    handles = []
    for bars, colour in zip(series.stacks(), colours(series.parts), strict=True):
        bottoms, tops = [bottom for bottom, _ in bars], [top for _, top in bars]
        if len(bars) <= MAX_BARS:
            heights = [top - bottom for bottom, top in bars]
            widths = [0.9 * length for length in lengths]
            shape = panel.bar(
                series.starts, heights, widths, bottoms, align="edge", color=colour, linewidth=0
            )
        else:
            # The last window has no start after it, so its value stands at its end as well.
            edges = [*series.starts, ends[-1]]
            low, high = [*bottoms, bottoms[-1]], [*tops, tops[-1]]
            shape = panel.fill_between(edges, low, high, step="post", color=colour, linewidth=0)
        handles.append(shape)
    panel.set_title(series.title, loc="left", fontsize=11, parse_math=False)
    panel.set_ylabel(series.quantity)
    panel.yaxis.set_major_formatter(
        ticker.StrMethodFormatter("{x:,.9g}" if series.currency else "{x:,.0f}")
    )
    panel.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=not series.currency))
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    if series.extent[0] < 0:
        panel.axhline(0, color="#888888", linewidth=0.8)
    else:
        panel.set_ylim(bottom=0)
    panel.set_axisbelow(True)
    panel.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    return handles
