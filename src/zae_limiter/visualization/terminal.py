"""Usage in the terminal: one panel for each limit, since their scales have nothing in common."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from zae_limiter.visualization.series import Series, scale

PANEL_LINES = 13
LEAST_WIDTH = 40
Y_TICKS = 5
COLUMNS_PER_TICK = 16
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
    positions = list(range(len(series.totals)))
    points = canvas.signal(positions, list(series.totals), marker="*" if ascii_only else "hd")
    canvas.draw(points.lines())
    canvas.title(series.title)
    canvas.label(f"{series.unit} (UTC)", "x")
    ticks = scale(series, Y_TICKS)
    canvas.ruler("y").lim(ticks[0], ticks[-1])
    canvas.ruler("y").ticks(ticks, [figure(tick) for tick in ticks])
    marked = _marked(len(positions), width // COLUMNS_PER_TICK)
    canvas.ruler("x").ticks(marked, [series.label(index) for index in marked])
    text: str = plotext.uncolorize(str(canvas.build()))
    canvas.clear()
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    shown = "\n".join(lines)
    return shown.translate(TO_ASCII) if ascii_only else shown


def _marked(count: int, most: int) -> list[int]:
    """Evenly spread windows that get a label."""
    if count <= most:
        return list(range(count))
    return sorted({round(index * (count - 1) / (most - 1)) for index in range(most)})
