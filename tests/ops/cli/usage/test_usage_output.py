import csv
import io
import re
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from html import escape
from itertools import pairwise

import pytest

from tests.ops.cli.stores import dynamodb_first, empty_store, on_both_engines
from tests.ops.cli.terminal import ANSI, terminal
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.models.usage import UsageSnapshot, WindowType
from zae_limiter.testing import FakeClock
from zae_limiter_ops.reports.usage_series import (
    UsageChart,
    UsagePart,
    UsageSeries,
    axis_ticks,
    labelled_windows,
    next_start,
    shortened,
    usage_chart,
)
from zae_limiter_ops.reports.visualization import plot_chart, save_chart

DAY = "2026-01-01"
FIRST_HOUR = 1_767_225_600 // 3600


def calls():
    """Yield two days of calls by two entities: hour, entity, tokens."""
    for hour in range(48):
        yield FIRST_HOUR + hour, "key-1", {"rpm": 1, "tpm": 100 * (hour % 24 + 1)}
        if hour % 12 == 0:
            yield FIRST_HOUR + hour, "key-2", {"rpm": 2}


@pytest.fixture(scope="module")
def used_store(tmp_path_factory):
    """Yield a function from an engine to the URL of a store on which the calls were made."""
    with ExitStack() as stack:

        @cache
        def make(engine):
            url = stack.enter_context(empty_store(engine, tmp_path_factory.mktemp("used")))
            clock = FakeClock()
            with SyncRepository.open(url=url, clock=clock) as repository:
                limits = [Limit.per_minute("rpm", 60), Limit.per_day("tpm", 10**6)]
                repository.set_system_defaults(limits)
                repository.set_resource_defaults("gpt-4", limits)
                act(SyncRateLimiter(repository), clock)
            return url

        yield make


@pytest.fixture
def used(engine, used_store):
    """The URL of a store that tests of this module read."""
    return used_store(engine)


def act(limiter, clock):
    for hour, entity_id, amounts in calls():
        clock.set(hour * 3_600_000)
        with limiter.acquire(entity_id, "gpt-4", amounts):
            pass


@dynamodb_first
def test_the_table_has_a_column_for_each_limit(cli, used):
    found = cli("usage", "list", "-e", "key-1", "--limit", "2", "--url", used)
    lines = found.out.splitlines()
    heads = ["hourly", "window", "entity", "resource", "rpm", "tpm", "calls", "rejected", "waited"]
    assert lines[0].split() == heads
    assert lines[2].split() == [f"{DAY}T00:00Z", "key-1", "gpt-4", "1", "100", "1", "0", "0"]
    assert "more: add --next-key '2026-01-01T01:00:00Z#hourly#key-1#gpt-4'" in found.err


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("subject", [("-r", "gpt-4"), ()], ids=" ".join)
def test_pages_join(cli, used, subject):
    with SyncRepository.open(url=used) as repository:
        repository.set_limits("key-1", [Limit.per_minute("rpm", 60)], "gpt-5")
    args = ("usage", "list", *subject, "--limit", "20", "--output", "json", "--url", used)
    found, key = [], None
    while True:
        page = cli(*args, *(["--next-key", key] if key else [])).json
        found += page["snapshots"]
        key = page["next_key"]
        if key is None:
            break
    assert len(found) == 52
    assert sum(each["counters"].get("rpm", 0) for each in found) == 48 + 8


@dynamodb_first
def test_csv_has_a_row_for_each_window(cli, used):
    args = ("-r", "gpt-4", "--window", "daily", "--output", "csv", "--url", used)
    rows = list(csv.DictReader(io.StringIO(cli("usage", "list", *args).out)))
    assert [(row["entity_id"], row["rpm"], row["tpm"]) for row in rows[:2]] == [
        ("key-1", "24", "30000"),
        ("key-2", "4", "0"),
    ]
    summary = cli("usage", "summary", *args).out.splitlines()
    assert summary[0] == "limit,total,average,through_children"
    assert "tpm,60000,30000.0,0" in summary


@dynamodb_first
def test_a_span_of_time_can_be_chosen(cli, used):
    args = ("-e", "key-1", "--start", f"{DAY}T05:00Z", "--end", f"{DAY}T07:00Z", "--url", used)
    total = cli("usage", "summary", *args, "--output", "json").json
    assert total["total"] == {"rpm": 2, "tpm": 600 + 700}
    shown = cli("usage", "summary", *args).out
    assert f"2 hours with usage, from {DAY}T05:00:00Z to {DAY}T07:00:00Z" in shown


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("window", "shown"),
    [
        ("hourly", f"1 hour with usage, from {DAY}T05:00:00Z to {DAY}T06:00:00Z"),
        ("daily", f"1 day with usage, from {DAY}T00:00:00Z to 2026-01-02T00:00:00Z"),
        ("monthly", f"1 month with usage, from {DAY}T00:00:00Z to 2026-02-01T00:00:00Z"),
    ],
)
def test_one_window_is_shown_from_its_start_to_its_end(cli, used, window, shown):
    span = ("--start", f"{DAY}T05:00Z", "--end", f"{DAY}T06:00Z")
    if window != "hourly":
        span = ("--start", DAY, "--end", "2026-01-02")
    assert shown in cli("usage", "summary", "--window", window, *span, "--url", used).out


@dynamodb_first
def test_without_a_subject_it_is_that_of_the_whole_namespace(cli, used, engine):
    of_resource = cli("usage", "summary", "-r", "gpt-4", "--output", "json", "--url", used).json
    assert cli("usage", "summary", "--output", "json", "--url", used).json == of_resource
    assert len(cli("usage", "list", "--url", used).out.splitlines()) == 52 + 2
    with SyncRepository.open(url=used) as repository:
        repository.register_namespace("empty")
    found = cli("usage", "list", "-N", "empty", "--url", used)
    assert (found.code, found.out) == (0, "")
    assert "no usage is recorded for this selection" in found.err


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize("command", ["list -e nobody", "summary -r none", "top -r none"])
def test_where_nothing_is_recorded_it_says_so(cli, engine, command):
    cli("resource", "set-defaults", "none", "-l", "rpm:5")
    found = cli("usage", *command.split())
    assert (found.code, found.out) == (0, "")
    assert "no usage is recorded for this selection" in found.err


# --- pictures --------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_a_plot_fits_the_terminal_and_names_its_axes(used, columns):
    pytest.importorskip("plotext")
    with terminal("usage", "list", "-e", "key-1", "--plot", "--url", used, columns=columns) as seen:
        assert seen.wait() == 0
    text = ANSI.sub("", seen.output).replace("\r", "")
    lines = text.splitlines()
    assert max(map(len, lines)) <= columns
    assert "Usage of key-1 in namespace default on gpt-4 by hour" in text.replace("\n", " ")
    assert [line.strip() for line in lines if "net tokens" in line] == [
        "rpm: net tokens per hour, 48 in all",
        "tpm: net tokens per hour, 60,000 in all",
    ]
    assert sum(line.strip() == "hour (UTC)" for line in lines) == 2
    assert len(re.findall(r"\n *01-01 00:00 .* 01-02 00:00 .*\n", text)) == 2
    assert re.search(r"\n *2k┤", text)
    assert "█" in text


def test_a_plot_stacks_entities_under_a_headline(cli, used):
    pytest.importorskip("plotext")
    found = cli("usage", "summary", "-r", "gpt-4", "--window", "daily", "--plot", "--url", used)
    head, _, _ = found.out.partition("\n\n")
    assert " ".join(head.splitlines()) == (
        "Usage of 2 entities in namespace default on gpt-4 by day, 2026-01-01 to 2026-01-03 UTC "
        "██ key-1   ▓▓ key-2"
    )
    assert "rpm: net tokens per day, 56 in all" in found.out
    assert "average per day" in found.out


@pytest.mark.parametrize(
    ("kind", "start"), [("png", b"\x89PNG"), pytest.param("svg", b"<?xml", marks=pytest.mark.slow)]
)
def test_a_picture_goes_to_a_file(cli, used, tmp_path, kind, start):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"usage.{kind}"
    found = cli("usage", "list", "-r", "gpt-4", "--output", kind, "--file", file, "--url", used)
    assert (found.code, found.out) == (0, "")
    assert file.read_bytes().startswith(start)


def test_a_picture_that_cannot_be_written_is_one_line(cli, used, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "gone" / "usage.png"
    args = ("usage", "list", "-r", "gpt-4", "--output", "png", "--file", file, "--url", used)
    assert "choose another file" in cli(*args).error(1)


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["--plot"], "pip install plotext"),
        (["--output", "svg", "--file", "x.svg"], "pip install matplotlib"),
    ],
)
def test_without_the_library_its_name_is_told(cli, used, monkeypatch, args, hint):
    monkeypatch.setitem(sys.modules, "plotext", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = cli("usage", "list", "-e", "key-1", *args, "--url", used).error(1)
    assert hint in line
    assert "zae-limiter[" not in line


def snapshot(hour, entity_id="a", **counters):
    return UsageSnapshot(entity_id, "r", f"{DAY}T{hour:02d}:00:00Z", "", "hourly", counters, 1)


def test_a_series_stacks_entities_and_fills_gaps_with_zeros():
    snapshots = [snapshot(1, rpm=1), snapshot(1, "b", rpm=2), snapshot(4, tpm=-5)]
    rpm, tpm = usage_chart(snapshots, "hourly", 6).series
    assert rpm.parts == (UsagePart("a", (1, 0, 0, 0)), UsagePart("b", (2, 0, 0, 0)))
    assert rpm.totals == (3, 0, 0, 0)
    assert tpm.totals == (0, 0, 0, -5)
    assert [rpm.label(index) for index in (0, 3)] == ["01-01 01:00", "01-01 04:00"]
    assert usage_chart([], "hourly", 6) is None


def test_the_largest_entities_are_named_and_the_rest_is_one_part():
    amounts = {"e": 5, "a": 1, "d": 4, "b": 2, "c": 3, "none": 0}
    snapshots = [snapshot(1, name, rpm=amount) for name, amount in amounts.items()]
    snapshots.append(replace(snapshot(1, "stopped", rpm=0), rejected=9))
    chart = usage_chart(snapshots, "hourly", 3, "all namespaces")
    rpm, rejected = chart.series
    assert rpm.parts == (
        UsagePart("e", (5,)),
        UsagePart("d", (4,)),
        UsagePart("c", (3,)),
        UsagePart("3 others", (3,), is_rest=True),
    )
    assert [part.totals for part in rejected.parts] == [(0,), (0,), (0,), (9,)]
    assert rejected.title == (
        "rejected calls per hour, 9 in all (approximate), most at stopped (9)"
    )
    assert chart.headline == (
        "Usage of 6 entities in all namespaces on r by hour, "
        "2026-01-01 01:00 to 2026-01-01 02:00 UTC"
    )
    *_, rest = usage_chart(snapshots, "hourly", 5).parts
    assert rest == UsagePart("1 other", (0,), is_rest=True)


def test_a_series_counts_tokens_of_children_and_parents_once():
    parent = replace(snapshot(1, "team", rpm=5), through_children={"rpm": 3})
    child = replace(snapshot(1, "key", rpm=3), rejected=4)
    rpm, rejected = usage_chart([parent, child], "hourly", 6).series
    assert (rpm.totals, rejected.totals) == ((5,), (4,))
    assert rpm.parts == (UsagePart("key", (3,)), UsagePart("team", (2,)))
    assert rpm.title == "rpm: net tokens per hour, 5 in all, each token once"
    assert rejected.title == "rejected calls per hour, 4 in all (approximate), most at key (4)"
    assert rejected.quantity == "calls"
    (alone,) = usage_chart([parent], "hourly", 6).series
    assert alone.totals == (5,)
    assert alone.title == "rpm: net tokens per hour, 5 in all, 3 of them through children"


def test_parts_below_zero_hang_under_it():
    amounts = {"a": 9, "b": -4, "c": 2}
    snapshots = [snapshot(1, name, rpm=amount) for name, amount in amounts.items()]
    (rpm,) = usage_chart(snapshots, "hourly", 6).series
    assert list(rpm.stacks()) == [[(0, 9)], [(0, -4)], [(9, 11)]]
    assert rpm.extent == (-4, 11)


def test_a_long_name_is_shortened_in_its_middle():
    assert shortened("short", 9) == "short"
    assert shortened("tenant-0123456789-key", 9) == "tena…-key"
    assert shortened("tenant-0123456789-key", 9, "...") == "ten...key"


def test_odd_names_are_drawn_as_they_are(tmp_path):
    pytest.importorskip("matplotlib")
    names = ("_hidden", "a$b$c", "<b>&", "用户")
    chart = usage_chart([snapshot(1, name, rpm=1) for name in names], "hourly", 6, "$x$")
    save_chart(chart, str(tmp_path / "usage.svg"), "svg")
    drawn = (tmp_path / "usage.svg").read_text()
    assert [f"<!-- {escape(name, quote=False)} -->" in drawn for name in names] == [True] * 4


def test_a_series_of_months():
    first, last = (
        UsageSnapshot("a", "r", f"{month}-01T00:00:00Z", "", "monthly", {"rpm": 5}, 1)
        for month in ("2025-11", "2026-02")
    )
    chart = usage_chart([first, last], "monthly", 6)
    (rpm,) = chart.series
    assert rpm.totals == (5, 0, 0, 5)
    assert [rpm.label(index) for index in range(4)] == ["2025-11", "2025-12", "2026-01", "2026-02"]
    assert rpm.unit == "month"
    assert [rpm.label(index) for index in labelled_windows(rpm, 2)] == ["2025-11", "2026-01"]
    assert chart.headline == "Usage of a on r by month, 2025-11-01 to 2026-03-01 UTC"


@pytest.mark.parametrize("windows", [3, 501])
def test_negative_hours_are_drawn_below_zero(tmp_path, windows):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    totals = (7, -7, 3) * (windows // 3)
    starts = tuple(start + timedelta(hours=hour) for hour in range(len(totals)))
    parts = (UsagePart("a", totals), UsagePart("b", totals))
    series = UsageSeries("rpm", "hourly", starts, parts)
    ticks = axis_ticks(series, 5)
    assert ticks[0] <= -14
    assert ticks[-1] >= 14
    pytest.importorskip("plotext")
    chart = UsageChart("headline", (series,))
    text = plot_chart(chart, 100, str, ascii_only=False)
    assert re.search(rf"\n *{ticks[0]}┤", text)
    pytest.importorskip("matplotlib")
    save_chart(chart, str(tmp_path / "usage.svg"), "svg")
    assert (tmp_path / "usage.svg").stat().st_size


def constant(window, count):
    """Return a series of ``count`` equal windows from early 2026 on."""
    starts = [datetime(2026, 1, 1, 2 if window == "hourly" else 0, tzinfo=UTC)]
    while len(starts) < count:
        starts.append(next_start(starts[-1], WindowType(window)))
    return UsageSeries("x", window, tuple(starts), (UsagePart("a", (5,) * count),))


@pytest.mark.parametrize(
    ("window", "count", "labels"),
    [
        ("hourly", 1, ["01-01 02:00"]),
        ("hourly", 10, ["01-01 03:00", "01-01 06:00", "01-01 09:00"]),
        ("hourly", 40, ["01-01 12:00", "01-02 00:00", "01-02 12:00"]),
        ("hourly", 168, ["01-03 00:00", "01-05 00:00", "01-07 00:00"]),
        ("daily", 3, ["2026-01-01", "2026-01-02", "2026-01-03"]),
        ("daily", 25, ["2026-01-05", "2026-01-12", "2026-01-19"]),
        ("monthly", 4, ["2026-01", "2026-02", "2026-03", "2026-04"]),
        ("monthly", 20, ["2026-01", "2026-07", "2027-01", "2027-07"]),
    ],
)
def test_labels_stand_at_round_times(window, count, labels):
    series = constant(window, count)
    assert [series.label(index) for index in labelled_windows(series, 4)] == labels


@pytest.mark.each_value_once
@pytest.mark.parametrize("window", ["hourly", "daily", "monthly"])
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_labels_are_evenly_apart_and_none_is_lost(window, columns):
    pytest.importorskip("plotext")
    for count in (*range(1, 50, 7), 11, 12, 13, 100, 2161):
        series = constant(window, count)
        for most in (1, 3, 6):
            found = labelled_windows(series, most)
            assert 1 <= len(found) <= most
            assert len({b - a for a, b in pairwise(found)}) <= 1
        chart = UsageChart("headline", (series,))
        lines = plot_chart(chart, columns, str, ascii_only=False).splitlines()
        assert max(map(len, lines)) <= columns
        assert len(re.findall("┬", lines[-3])) == len(lines[-2].split()) / (
            2 if window == "hourly" else 1
        )


@pytest.mark.parametrize(
    ("totals", "ticks"),
    [
        ((0, 0), [0, 1]),
        ((3, 7), [0, 2, 4, 6, 8]),
        ((90, 1234), [0, 500, 1000, 1500]),
        ((-5, 20), [-5, 0, 5, 10, 15, 20]),
    ],
)
def test_axes_have_round_numbers(totals, ticks):
    snapshots = [snapshot(hour, x=total) for hour, total in enumerate(totals)]
    (series,) = usage_chart(snapshots, "hourly", 6).series
    assert axis_ticks(series, 5) == ticks


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("window", "start", "first"),
    [
        ("hourly", f"{DAY}T05:30Z", f"{DAY}T05:00:00Z"),
        ("hourly", f"{DAY}T05:00Z", f"{DAY}T05:00:00Z"),
        ("daily", f"{DAY}T05:30Z", f"{DAY}T00:00:00Z"),
        ("monthly", "2026-01-31T05:30Z", f"{DAY}T00:00:00Z"),
    ],
)
def test_a_start_inside_a_window_keeps_that_window(cli, used, window, start, first):
    args = ("-e", "key-1", "--start", start, "--window", window, "--url", used)
    windows = cli("usage", "list", *args, "--output", "json").json["snapshots"]
    assert windows[0]["window_start"] == first
    summary = cli("usage", "summary", *args, "--output", "json").json
    assert summary["min_window_start"] == first
