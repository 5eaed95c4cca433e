"""Usage as the page shows it: drawn over time, and the largest consumers."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.models.usage import money_label
from zae_limiter_ops.reports.usage_columns import entity_columns
from zae_limiter_ops.reports.usage_series import UsageChart, usage_chart
from zae_limiter_ops.reports.usage_svg import chart_legend, svg_chart
from zae_limiter_ops.reports.visualization import LARGEST_IN_COLOUR
from zae_limiter_ops.views.columns import json_of, write_csv
from zae_limiter_ops.views.names import unknown_resource, unused_limit

if TYPE_CHECKING:
    from zae_limiter import SyncRepository
    from zae_limiter.models.usage import UsageRanking, UsageSnapshot, WindowName

TOP = 25
MAX_WINDOWS = 2000
# The windows of the usage chart, and the time that it shows.
SPANS: dict[str, timedelta] = {
    "hourly": timedelta(hours=48),
    "daily": timedelta(days=30),
    "monthly": timedelta(days=366),
}


@dataclass(frozen=True, slots=True)
class DrawnUsage:
    """A usage chart as SVG, with the windows behind it."""

    headline: str
    drawings: tuple[tuple[str, str], ...]  # title and SVG of each series
    legend: str
    windows: tuple[UsageSnapshot, ...]


def draw_usage(
    repository: SyncRepository,
    window: str,
    *,
    entity_id: str | None = None,
    resource: str | None = None,
) -> DrawnUsage | None:
    """Return the usage of an entity or a resource; None if there is none."""
    name: WindowName = window if window in SPANS else "hourly"  # type: ignore[assignment]
    now_ms = repository.charging.clock()
    start = iso_from_ms(now_ms - int(SPANS[name].total_seconds() * 1000))
    windows, _ = repository.get_usage_snapshots(entity_id, resource, name, start, limit=MAX_WINDOWS)
    chart = usage_chart(windows, name, LARGEST_IN_COLOUR)
    return None if chart is None else _drawn(chart, windows)


def _drawn(chart: UsageChart, windows: list[UsageSnapshot]) -> DrawnUsage:
    return DrawnUsage(
        chart.headline,
        tuple((series.title, svg_chart(series)) for series in chart.series),
        chart_legend(chart) if len(chart.parts) > 1 else "",
        tuple(reversed(windows)),
    )


# --- the largest consumers -------------------------------------------------------------------


def ranking_of(
    repository: SyncRepository, by: str | None, last: str, resource: str | None
) -> UsageRanking:
    """Return the largest consumers; raise for an unknown limit or resource."""
    ranking = repository.get_top_usage(by, last, resource=resource, limit=TOP)
    if problem := unused_limit(ranking.by, ranking.limit_names):
        raise ValidationError("rank by", ranking.by, problem)
    if not ranking.limit_names and (problem := unknown_resource([repository], resource)):
        raise ValidationError("resource", resource, problem)
    return ranking


def limit_labels(ranking: UsageRanking | None) -> dict[str, str]:
    """Return the names of all limits with usage, sorted, and what stands above their columns."""
    usages = [*ranking.consumers, *ranking.parents] if ranking else []
    names = sorted({name for usage in usages for name in usage.counters})
    currencies = {name: unit for usage in usages for name, unit in usage.currencies.items()}
    return {name: money_label(name, currencies.get(name)) for name in names}


def csv_of(ranking: UsageRanking) -> str:
    """Return the consumers as CSV."""
    text = io.StringIO()
    write_csv(entity_columns(ranking.consumers, "entity"), ranking.consumers, text)
    return text.getvalue()


def json_text_of(ranking: UsageRanking) -> str:
    """Return the ranking as JSON."""
    columns = entity_columns(ranking.consumers, "entity")
    document = {
        "by": ranking.by,
        "start_time": ranking.start_time,
        "end_time": ranking.end_time,
        "consumers": [json_of(columns, usage) for usage in ranking.consumers],
        "parents": [json_of(columns, usage) for usage in ranking.parents],
    }
    return json.dumps(document, indent=2)
