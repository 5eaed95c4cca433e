"""Usage as text: ``UsageFormatter`` and ``format_usage_snapshots``."""

import pytest

from zae_limiter import UsageSnapshot, ValidationError
from zae_limiter_ops.reports.visualization import UsageFormatter, format_usage_snapshots


def snapshot(hour, **counters):
    return UsageSnapshot(
        entity_id="user-1",
        resource="gpt-4",
        window_start=f"2026-01-01T{hour:02}:00:00Z",
        window_end=f"2026-01-01T{hour + 1:02}:00:00Z",
        window_type="hourly",
        counters=counters,
        total_events=3,
    )


def test_a_table_has_a_line_for_each_window():
    text = format_usage_snapshots([snapshot(1, tpm=12_000), snapshot(2, rpm=5, tpm=7)])
    assert text.splitlines() == [
        "window                type    entity  resource  rpm     tpm  events  rejected  waited",
        "2026-01-01T01:00:00Z  hourly  user-1  gpt-4       0  12,000       3         0       0",
        "2026-01-01T02:00:00Z  hourly  user-1  gpt-4       5       7       3         0       0",
    ]


@pytest.mark.parametrize("formatter", [UsageFormatter.PLOT, "plot"])
def test_a_plot_has_a_panel_for_each_limit(formatter):
    pytest.importorskip("plotext")
    text = format_usage_snapshots([snapshot(1, rpm=5), snapshot(3, rpm=9)], formatter, width=60)
    assert "rpm: net tokens per hour, 14 in all" in text
    assert text.startswith("Usage of user-1 on gpt-4 by hour, 2026-01-01 01:00 to")
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("formatter", UsageFormatter)
def test_no_usage_is_said(formatter):
    assert format_usage_snapshots([], formatter) == "no usage"


def test_another_format_is_refused():
    with pytest.raises(ValidationError, match="table, plot"):
        format_usage_snapshots([], "pie")
