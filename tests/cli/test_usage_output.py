import csv
import io
import re
import sys

import pytest

from tests.cli.terminal import ANSI, terminal
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.models.usage import UsageSnapshot
from zae_limiter.testing import FakeClock
from zae_limiter.visualization.series import scale, usage_series

DAY = "2026-01-01"


@pytest.fixture
def used(tmp_path):
    """Two days of calls by two entities."""
    clock, url = FakeClock(), f"sqlite:///{tmp_path}/used.db"
    with SyncRepository.open(url=url, clock=clock) as repository:
        repository.set_system_defaults([Limit.per_minute("rpm", 60), Limit.per_day("tpm", 10**6)])
        limiter = SyncRateLimiter(repository)
        for hour in range(48):
            clock.set(1_767_225_600_000 + hour * 3_600_000)
            with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100 * (hour % 24 + 1)}):
                pass
            if hour % 12 == 0:
                with limiter.acquire("key-2", "gpt-4", {"rpm": 2}):
                    pass
    return url


def test_the_table_has_a_column_for_each_limit(cli, used):
    found = cli("usage", "list", "-e", "key-1", "--limit", "2", "--url", used)
    lines = found.out.splitlines()
    assert lines[0].split() == ["hourly", "window", "entity", "resource", "rpm", "tpm", "calls"]
    assert lines[2].split() == [f"{DAY}T00:00Z", "key-1", "gpt-4", "1", "100", "1"]
    assert "more: add --next-key '2026-01-01T01:00:00Z#hourly#key-1#gpt-4'" in found.err


def test_pages_join(cli, used):
    args = ("usage", "list", "-r", "gpt-4", "--limit", "20", "--output", "json", "--url", used)
    found, key = [], None
    while True:
        page = cli(*args, *(["--next-key", key] if key else [])).json
        found += page["snapshots"]
        key = page["next_key"]
        if key is None:
            break
    assert len(found) == 52
    assert sum(each["counters"].get("rpm", 0) for each in found) == 48 + 8


def test_csv_has_a_row_for_each_window(cli, used):
    args = ("-r", "gpt-4", "--window", "daily", "--output", "csv", "--url", used)
    rows = list(csv.DictReader(io.StringIO(cli("usage", "list", *args).out)))
    assert [(row["entity_id"], row["rpm"], row["tpm"]) for row in rows[:2]] == [
        ("key-1", "24", "30000"),
        ("key-2", "4", "0"),
    ]
    summary = cli("usage", "summary", *args).out.splitlines()
    assert summary[0] == "limit,total,average"
    assert "tpm,60000,15000.0" in summary


def test_a_span_of_time_can_be_chosen(cli, used):
    args = ("-e", "key-1", "--start", f"{DAY}T05:00Z", "--end", f"{DAY}T07:00Z", "--url", used)
    total = cli("usage", "summary", *args, "--output", "json").json
    assert total["total"] == {"rpm": 2, "tpm": 600 + 700}
    assert "2 windows with usage" in cli("usage", "summary", *args).out


# --- pictures --------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_a_plot_fits_the_terminal_and_names_its_axes(used, columns):
    pytest.importorskip("plotext")
    with terminal("usage", "list", "-e", "key-1", "--plot", "--url", used, columns=columns) as seen:
        assert seen.wait() == 0
    text = ANSI.sub("", seen.output).replace("\r", "")
    lines = text.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line.strip() for line in lines if "net tokens" in line] == [
        "rpm: net tokens per hour",
        "tpm: net tokens per hour",
    ]
    assert sum(line.strip() == "hour (UTC)" for line in lines) == 2
    assert re.search(r"01-01 00:00.*01-02 23:00", text)
    assert re.search(r"\n *2k┤", text)


def test_a_plot_says_how_many_entities_it_adds_up(cli, used):
    pytest.importorskip("plotext")
    found = cli("usage", "summary", "-r", "gpt-4", "--window", "daily", "--plot", "--url", used)
    assert "tpm: net tokens per day, 2 entities together" in found.out
    assert "average per day" in found.out


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
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
    ("args", "extra"),
    [
        (["--plot"], "zae-limiter[plot]"),
        (["--output", "svg", "--file", "x.svg"], "zae-limiter[report]"),
    ],
)
def test_without_the_library_the_extra_is_named(cli, used, monkeypatch, args, extra):
    monkeypatch.setitem(sys.modules, "plotext", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert extra in cli("usage", "list", "-e", "key-1", *args, "--url", used).error(1)


def snapshot(hour, entity_id="a", **counters):
    return UsageSnapshot(entity_id, "r", f"{DAY}T{hour:02d}:00:00Z", "", "hourly", counters, 1)


def test_a_series_adds_entities_up_and_fills_gaps_with_zeros():
    rpm, tpm = usage_series(
        [snapshot(1, rpm=1), snapshot(1, "b", rpm=2), snapshot(4, tpm=-5)], "hourly"
    )
    assert rpm.totals == (3, 0, 0, 0)
    assert tpm.totals == (0, 0, 0, -5)
    assert [rpm.label(index) for index in (0, 3)] == ["01-01 01:00", "01-01 04:00"]
    assert rpm.entities == 2
    assert usage_series([], "hourly") == []


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
    (series,) = usage_series([snapshot(i, x=total) for i, total in enumerate(totals)], "hourly")
    assert scale(series, 5) == ticks
