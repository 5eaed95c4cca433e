"""Usage as a picture in a file."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from zae_limiter.visualization.series import Series

INCHES_WIDE, INCHES_PER_PANEL = 10.0, 2.6
DOTS_PER_INCH = 120
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # for every eye


def save(series: Sequence[Series], file: str, kind: str) -> None:
    """Write one panel for each limit; ``kind`` is ``png`` or ``svg``."""
    figures = importlib.import_module("matplotlib.figure")
    size = (INCHES_WIDE, INCHES_PER_PANEL * len(series) + 0.4)
    figure = figures.Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(series), sharex=True, squeeze=False)[:, 0]
    for index, (each, panel) in enumerate(zip(series, panels, strict=True)):
        _draw(panel, each, COLOURS[index % len(COLOURS)])
    panels[-1].set_xlabel(f"{series[0].unit} (UTC)")
    figure.align_ylabels()
    figure.savefig(file, format=kind, dpi=DOTS_PER_INCH)


def _draw(panel: Any, series: Series, colour: str) -> None:
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
