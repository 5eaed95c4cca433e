"""Usage as SVG: stacked bars over windows, for pages of any kind.

The elements have no style of their own and take the colour of the text around them, so that they
fit light and dark pages and are allowed by strict content policies.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from zae_limiter_ops.reports.usage_series import (
    LABEL_LENGTH,
    UsageChart,
    UsageSeries,
    axis_ticks,
    labelled_windows,
    shortened,
)
from zae_limiter_ops.reports.visualization import colours
from zae_limiter_ops.views.columns import as_text

MAX_TITLED_BARS = 400  # bars with a text of their own; more are drawn as one shape
# The size of a chart in its own units, about pixels; the page scales the chart to its width.
WIDTH, HEIGHT = 900, 200
LEFT, RIGHT, TOP, BOTTOM = 80, 10, 10, 24  # room for the labels of both axes
Y_TICKS, MAX_LABELS = 4, 8
MIN_WINDOWS = 12  # the axis has room for this many, so that a single bar does not fill the chart


def chart_legend(chart: UsageChart) -> str:
    """Return the legend of a chart as a paragraph."""
    entries = "".join(
        f'<span class="k"><svg width="10" height="10" aria-hidden="true">'
        f'<rect width="10" height="10" fill="{colour}"/></svg>'
        f"{escape(shortened(part.label, LABEL_LENGTH))}</span>"
        for part, colour in zip(chart.parts, colours(chart.parts), strict=True)
    )
    return f"<p>{entries}</p>"


def svg_chart(series: UsageSeries) -> str:
    """Return stacked bars over windows as an SVG element; negative bars hang below zero."""
    ticks = axis_ticks(series, Y_TICKS)
    low, high = float(ticks[0]), float(ticks[-1])

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

    lines = "".join(
        f'<line x1="{LEFT}" y1="{y(float(tick))}" x2="{WIDTH - RIGHT}" y2="{y(float(tick))}" '
        f'stroke="currentColor" stroke-opacity="{0.6 if tick == 0 else 0.15}"/>'
        f'<text x="{LEFT - 6}" y="{y(float(tick)) + 4}" text-anchor="end">{as_text(tick)}</text>'
        for tick in ticks
    )
    step = _step(series)
    labels = "".join(
        f'<text x="{LEFT + step * (index + 0.5):.1f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(series.label(index))}</text>"
        for index in labelled_windows(series, MAX_LABELS)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="11" fill="currentColor" '
        f'aria-label="{escape(series.title)}">{lines}{_bars(series, y)}{labels}</svg>'
    )


def _step(series: UsageSeries) -> float:
    """Return the distance from one bar to the next."""
    return (WIDTH - LEFT - RIGHT) / max(MIN_WINDOWS, len(series.starts))


def _bars(series: UsageSeries, y: Callable[[float], float]) -> str:
    """Return a group of shapes for each part; if there are few bars, each has a text."""
    step = _step(series)
    drawn = sum(amount != 0 for part in series.parts for amount in part.totals)
    groups = []
    stacks = zip(series.parts, series.stacks(), colours(series.parts), strict=True)
    for part, bars, colour in stacks:
        shapes = []
        for index, (bottom, top) in enumerate(bars):
            if bottom != top:
                left = LEFT + step * index
                shape = f"M{left:.1f} {y(top)}h{step * 0.9:.2f}V{y(bottom)}H{left:.1f}z"
                shapes.append((index, shape))
        if drawn <= MAX_TITLED_BARS:
            paths = "".join(
                f'<path d="{shape}"><title>{escape(part.label)}, {escape(series.label(index))}: '
                f"{as_text(part.totals[index])} {series.quantity}</title></path>"
                for index, shape in shapes
            )
        else:
            paths = f'<path d="{"".join(shape for _, shape in shapes)}"/>'
        groups.append(f'<g fill="{colour}">{paths}</g>')
    return "".join(groups)
