"""Usage as one self-contained HTML page, which can be mailed or archived.

Charts are inline SVG, all texts are escaped, and the page loads nothing from other places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeVar

from zae_limiter.models.usage import EntityUsage, UsageRanking, UsageSnapshot, UsageSummary
from zae_limiter_ops.reports.usage_columns import (
    entity_columns,
    limit_totals,
    total_columns,
    window_columns,
)
from zae_limiter_ops.reports.usage_series import UsageChart, usage_chart
from zae_limiter_ops.reports.usage_svg import chart_legend, svg_chart
from zae_limiter_ops.reports.visualization import LARGEST_IN_COLOUR
from zae_limiter_ops.views.columns import Column, cells_of, titles_of

T = TypeVar("T")

MAX_ROWS = 1000  # windows of the table: a page of about 300 kB, which mail programs show

# With this policy browsers load nothing from other places, even if an escape were missing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:960px;padding:0 1em;"
    "color:#222;background:#fff}h1{font-size:1.4em}h2{font-size:1.1em;margin:1.6em 0 .4em}"
    "table{border-collapse:collapse;margin:.6em 0}th,td{padding:.2em .7em;text-align:left;"
    "border-bottom:1px solid #ddd}.n{text-align:right;font-variant-numeric:tabular-nums}"
    "svg{width:100%;height:auto}.q{color:#666}.k{display:inline-block;margin-right:1.2em}"
    ".w td:first-child{white-space:nowrap}"
    ".k svg{width:.8em;height:.8em;margin-right:.4em}"
)
_EACH_TOKEN_ONCE = (
    "Totals and charts of several entities count each token once: tokens that parents used through "
    "their children count for the children."
)
_APPROXIMATE = "Rejected, waiting and shadowed calls are approximate."


def usage_page(
    windows: Sequence[UsageSnapshot], window_type: str, summary: UsageSummary, place: str = ""
) -> str:
    """Return a page with totals, a chart for each limit, and a table of the windows.

    ``place`` names the place of the entities in the headline, such as a namespace.
    """
    chart = usage_chart(windows, window_type, LARGEST_IN_COLOUR, place)
    if chart is None:
        return _page("Usage", ["<p>No usage is recorded for this selection.</p>"])
    unit = chart.series[0].unit
    parts = [
        f"<p>{_count(summary.window_count, unit)} with usage.</p>",
        _totals(summary, unit),
        *_charts(chart),
        "<h2>Windows</h2>",
        _windows(windows),
        f'<p class="q">{_EACH_TOKEN_ONCE} {_APPROXIMATE} Times are in UTC.</p>',
    ]
    return _page(chart.headline, parts)


def _count(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def ranking_page(subject: str, ranking: UsageRanking) -> str:
    """Return a page with the largest consumers and parents."""
    by = "calls" if ranking.by is None else ranking.by
    parts = [
        f"<p>By {escape(by)}, from {escape(ranking.start_time)} to {escape(ranking.end_time)}.</p>",
        _entities(ranking.consumers) if ranking.consumers else "<p>No usage is recorded.</p>",
    ]
    if ranking.parents:
        parts += ["<h2>Parents, with the tokens of their children</h2>", _entities(ranking.parents)]
    parts.append(f'<p class="q">{_APPROXIMATE} Times are in UTC.</p>')
    return _page(f"Largest consumers of {subject}", parts)


def _page(title: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _charts(chart: UsageChart) -> list[str]:
    legend = chart_legend(chart) if len(chart.parts) > 1 else ""
    parts = []
    for series in chart.series:
        parts.append(f"<h2>{escape(series.title)}</h2>")
        parts.append(legend + svg_chart(series))
    return parts


# --- tables ----------------------------------------------------------------------------------


def _totals(summary: UsageSummary, unit: str) -> str:
    totals = sorted(limit_totals(summary), key=lambda total: total.limit_name)
    were = "was" if summary.rejected == 1 else "were"
    rejected = (
        f"<p>{_count(summary.calls, 'call')} admitted.</p>"
        f"<p>{_count(summary.rejected, 'call')} {were} rejected, {summary.waited:,} waited"
        f"{f', {summary.shadowed:,} were shadowed' if summary.shadowed else ''}.</p>"
    )
    return _table(total_columns(totals, unit), totals) + rejected


def _windows(windows: Sequence[UsageSnapshot]) -> str:
    table = _table(window_columns(windows), windows[:MAX_ROWS], kind="w")
    if len(windows) <= MAX_ROWS:
        return table
    return f"{table}<p>The first {MAX_ROWS:,} of {len(windows):,} windows are listed.</p>"


def _entities(usages: Sequence[EntityUsage]) -> str:
    return _table(entity_columns(usages, "entity"), usages)


def _table(columns: Sequence[Column[T]], records: Iterable[T], *, kind: str = "") -> str:
    """Return a table; ``kind`` is its class."""
    titles = titles_of(columns)
    right = [title.endswith(">") for title in titles]

    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{escape(cell)}</{tag}>'
            if is_right
            else f"<{tag}>{escape(cell)}</{tag}>"
            for cell, is_right in zip(cells, right, strict=True)
        )

    head = f"<tr>{line('th', [title.rstrip('>=') for title in titles])}</tr>"
    body = "\n".join(f"<tr>{line('td', cells_of(columns, record))}</tr>" for record in records)
    return f'<table class="{kind}">\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>'
