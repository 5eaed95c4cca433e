"""Usage as text tables, charts in the terminal (plotext), and PNG or SVG files (matplotlib).

Both libraries are extras (``plot`` and ``report``), so they are imported when a chart is drawn.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.usage import UsageSnapshot, WindowType

HOUR_S = 3600
MONDAY_HOUR = 4 * 24  # the first Monday of 1970, in hours; weeks are labelled at their Mondays
STEPS = {WindowType.HOURLY: timedelta(hours=1), WindowType.DAILY: timedelta(days=1)}

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
    header = ["window", "type", "entity", "resource", *names, "events"]
    rows = [
        [
            snapshot.window_start,
            str(snapshot.window_type),
            snapshot.entity_id,
            snapshot.resource,
            *(f"{snapshot.counters.get(name, 0):,}" for name in names),
            f"{snapshot.total_events:,}",
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


# --- series ----------------------------------------------------------------------------------


class UsageSeries(NamedTuple):
    """Usage of one limit per window, summed over entities and resources; gaps are zeros."""

    limit_name: str
    window_type: str
    starts: tuple[datetime, ...]
    totals: tuple[int, ...]
    entities: int = 1

    @property
    def title(self) -> str:
        """The title. It counts the entities, since parents repeat the calls of their children."""
        several = f", {self.entities} entities together" if self.entities > 1 else ""
        return f"{self.limit_name}: net tokens per {self.unit}{several}"

    @property
    def unit(self) -> str:
        """``hour`` or ``day``."""
        return "hour" if self.window_type == WindowType.HOURLY else "day"

    def label(self, index: int) -> str:
        """Return a short text for the window at ``index``."""
        style = "%m-%d %H:%M" if self.unit == "hour" else "%Y-%m-%d"
        return self.starts[index].strftime(style)


def usage_series(snapshots: Iterable[UsageSnapshot], window_type: str) -> list[UsageSeries]:
    """Return one series for each limit, sorted by name, all over the same windows."""
    totals: dict[str, dict[datetime, int]] = {}
    used_starts: set[datetime] = set()
    entities: set[str] = set()
    for snapshot in snapshots:
        if snapshot.window_type != window_type:
            continue
        start = datetime.fromisoformat(snapshot.window_start).astimezone(UTC)
        used_starts.add(start)
        entities.add(snapshot.entity_id)
        for name, amount in snapshot.counters.items():
            limit_totals = totals.setdefault(name, {})
            limit_totals[start] = limit_totals.get(start, 0) + amount
    if not used_starts:
        return []
    starts = _range(min(used_starts), max(used_starts), STEPS[WindowType(window_type)])
    return [
        UsageSeries(
            name,
            window_type,
            starts,
            tuple(limit_totals.get(start, 0) for start in starts),
            len(entities),
        )
        for name, limit_totals in sorted(totals.items())
    ]


def _range(first: datetime, last: datetime, step: timedelta) -> tuple[datetime, ...]:
    return tuple(first + index * step for index in range((last - first) // step + 1))


def labelled_windows(series: UsageSeries, max_labels: int) -> list[int]:
    """Return the indexes of the windows to label: at round hours or days, evenly apart."""
    hours = [int(start.timestamp()) // HOUR_S for start in series.starts]
    window = STEPS[WindowType(series.window_type)] // timedelta(hours=1)
    count = len(hours)
    spans = (span for span in _round_spans() if span % window == 0)
    span = next(span for span in spans if -(-count * window // span) <= max_labels)
    indexes = [index for index, hour in enumerate(hours) if (hour - MONDAY_HOUR) % span == 0]
    return indexes or [0]


def _round_spans() -> Iterator[int]:
    """Yield spans in hours: parts of a day, days, a week, and twice that, and so on."""
    yield from (1, 2, 3, 6, 12, 24, 48)
    weeks = 1
    while True:
        yield weeks * 7 * 24
        weeks *= 2


def axis_ticks(series: UsageSeries, count: int) -> list[int]:
    """Return about ``count`` round numbers that span zero and all totals."""
    low, high = min(0, *series.totals), max(1, *series.totals)
    step = next(number for number in _round_numbers() if (high - low) / number <= count)
    return list(range(low // step * step, (-(-high // step) + 1) * step, step))


def _round_numbers() -> Iterator[int]:
    size = 1
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10


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
    days = 1 / 24 if series.unit == "hour" else 1.0
    panel.bar(series.starts, series.totals, width=days * 0.9, align="edge", color=colour)
    panel.set_title(series.title, loc="left", fontsize=11)
    panel.set_ylabel("tokens")
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    panel.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    panel.set_axisbelow(True)
    panel.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
