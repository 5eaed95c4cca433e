"""Usage in the terminal: one panel for each limit, since their scales have nothing in common."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from zae_limiter.visualization.series import Series, marked, scale

PANEL_LINES = 13
LEAST_WIDTH = 40
Y_TICKS = 5
LABEL_COLUMNS = 13
EDGE_COLUMNS = 5  # by which labels at the edges are moved inwards
LEAST_WINDOWS = 12  # that there is room for, so that a bar does not fill the panel
TO_ASCII = str.maketrans("─│┌┐└┘┤┬├┴┼", "-|++++|+|++")


def plot(
    series: Sequence[Series], width: int, figure: Callable[[int], str], *, ascii_only: bool
) -> str:
    """Panels of at most ``width`` columns; ``figure`` writes the numbers of the axis."""
    panels = (_panel(each, max(LEAST_WIDTH, width), figure, ascii_only) for each in series)
    return "\n\n".join(panels)


def _panel(series: Series, width: int, figure: Callable[[int], str], ascii_only: bool) -> str:
    plotext = importlib.import_module("plotext")
    canvas = plotext.figure
    canvas.clear()
    canvas.theme("colorless")
    canvas.plot_size(width, PANEL_LINES)
    count = len(series.totals)
    canvas.draw(_bars(canvas, series, width, "#" if ascii_only else "hd"))
    canvas.title(series.title)
    canvas.label(f"{series.unit} (UTC)", "x")
    ticks = scale(series, Y_TICKS)
    canvas.ruler("y").lim(ticks[0], ticks[-1])
    canvas.ruler("y").ticks(ticks, [figure(tick) for tick in ticks])
    margin = max(0, LEAST_WINDOWS - count) / 2 + 0.5
    canvas.ruler("x").lim(-margin, count - 1 + margin)
    labelled = marked(series, _room_for_labels(count, width))
    canvas.ruler("x").ticks(labelled, [series.label(index) for index in labelled])
    text: str = plotext.uncolorize(str(canvas.build()))
    canvas.clear()
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    shown = "\n".join(lines)
    return shown.translate(TO_ASCII) if ascii_only else shown


def _bars(canvas: Any, series: Series, width: int, marker: str) -> Any:
    """With gaps if there is room for them; lines where bars would be thinner and take long."""
    count, totals = len(series.totals), list(series.totals)
    if count > width:
        return canvas.signal(list(range(count)), totals, marker=marker).fillx()
    gap = 0.2 if count <= width // 4 else 0.0
    return canvas.bar(list(range(count)), totals, marker=marker, width=1 - gap)


def _room_for_labels(count: int, width: int) -> int:
    if count < LEAST_WINDOWS:  # the bars stand in the middle
        return width * count // LEAST_WINDOWS // LABEL_COLUMNS + 1
    return max(1, width // (LABEL_COLUMNS + EDGE_COLUMNS))
