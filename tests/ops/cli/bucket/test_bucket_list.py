"""bucket list answers "who is throttled?", on every engine."""

import re
import signal
import subprocess
import sys

import pytest

from tests.ops.cli.stores import dynamodb_first, on_both_engines
from tests.ops.cli.terminal import CTRL_C, INTERRUPTIBLE, MODULE, environment, run_command, terminal
from zae_limiter import Limit, SyncRateLimiter

INTERRUPTED = (sys.executable, "-c", INTERRUPTIBLE)
RPM = Limit.per_day("rpm", 100)  # slow, so that levels hardly change during a test
USED = {"key-a": 10, "key-b": 95, "key-c": 50, "key-d": 100}


@pytest.fixture
def used(opened):
    """Buckets on 'gpt-5' that are used to 10, 95, 50 and 100 per cent; key-7 is in debt."""
    limiter = SyncRateLimiter(opened)
    for entity_id, amount in USED.items():
        with limiter.acquire(entity_id, "gpt-5", {"rpm": amount}, [RPM]):
            pass


def names(page):
    return [bucket["entity_id"] for bucket in page["buckets"]]


@dynamodb_first
@pytest.mark.usefixtures("used")
def test_buckets_are_listed_in_pages(cli):
    entity_ids, cursor = [], []
    while cursor != ["--cursor", None]:
        page = cli("bucket", "list", "--limit", "2", *cursor, "--output", "json").json
        assert len(page["buckets"]) <= 2
        entity_ids += names(page)
        cursor = ["--cursor", page["next_cursor"]]
    assert sorted(entity_ids) == ["key-7", "key-a", "key-b", "key-c", "key-d", "project-1"]
    found = cli("bucket", "list", "--limit", "3")
    assert "more: add --all, or --cursor" in found.err
    found = cli("bucket", "list", "--all")
    assert found.err == ""
    (line,) = (line for line in found.out.splitlines() if line.startswith("key-b"))
    assert line.split()[:5] == ["key-b", "gpt-5", "rpm", "5", "100"]
    assert line.split()[6:] == ["95%", "now"]


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.usefixtures("used")
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--resource", "gpt-5"], {"key-a", "key-b", "key-c", "key-d"}),
        (["--entity", "key-7"], {"key-7"}),
        (["--entity", "key-a", "--resource", "gpt-5"], {"key-a"}),
        (["--entity", "key-a", "--resource", "gpt-4"], set()),
    ],
)
def test_buckets_of_a_resource_or_an_entity_are_listed(cli, args, expected):
    assert set(names(cli("bucket", "list", *args, "--output", "json").json)) == expected


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.usefixtures("used")
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--near", "98%", "-r", "gpt-5"], ["key-d"]),
        (["--near", "90%", "-r", "gpt-5"], ["key-d", "key-b"]),
        (["--near", "94", "--sort", "wait"], ["key-d", "key-7", "key-b"]),
        (["--near", "94%"], ["key-7", "key-d", "key-b"]),
        (["--sort", "used", "--limit", "3"], ["key-7", "key-d", "key-b"]),
    ],
)
def test_the_most_used_buckets_come_first(cli, args, expected):
    page = cli("bucket", "list", *args, "--output", "json").json
    assert names(page) == expected
    assert page["buckets_read"] == (4 if "gpt-5" in args else 6)
    found = cli("bucket", "list", *args)
    assert f"read {page['buckets_read']} buckets" in found.err
    assert found.out.splitlines()[2].split()[0] == expected[0]


@dynamodb_first
def test_a_debt_is_shown_with_its_waiting_time(cli):
    (bucket,) = cli("bucket", "list", "--near", "100", "--output", "json").json["buckets"]
    (limit,) = bucket["limits"]  # rpm of key-7 is not limited
    assert limit["limit_name"] == "tpm"
    assert 990_000 < limit["debt_milli"] == -limit["level_milli"] <= 1_000_000
    assert 59 < limit["retry_after_seconds"] <= 60.06
    assert 149 < limit["used_pct"] <= 150
    (line,) = (line for line in cli("bucket", "list", "--near", "100").out.splitlines()[2:])
    assert " in 59." in line or "in 1 min" in line or "in 60 s" in line


@pytest.mark.each_value_once
@on_both_engines
@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--resource", "gpt4"], "no bucket on 'gpt4' is stored"),
        (["--resource", "gpt4"], "did you mean 'gpt-4'?"),
        (["--entity", "kez-7"], "did you mean 'key-7'?"),
        (["--resource", "gpt4", "--limited"], "did you mean 'gpt-4'?"),
        (["--near", "99", "-e", "project-1"], "read 1 bucket; 0 of them match"),
    ],
)
def test_no_bucket_is_no_failure_but_is_said(cli, args, shown):
    found = cli("bucket", "list", *args)
    assert (found.code, found.out) == (0, "")
    assert shown in found.err


@pytest.mark.parametrize(
    "args",
    [
        ["--near", "0"],
        ["--near", "101%"],
        ["--near", "most"],
        ["--sort", "used", "--all"],
        ["--limited", "--cursor", "a#b"],
        ["--cursor", "no-cursor"],
        ["--watch", "--output", "json"],
        ["--watch", "0"],
    ],
)
def test_what_cannot_be_listed_is_refused(cli, args):
    cli("bucket", "list", *args).error(2)


@dynamodb_first
def test_watching_a_terminal_ends_with_ctrl_c_and_no_error(cli, engine):
    with terminal("bucket", "list", "--watch", "0.1", "--url", cli.url) as screen:
        for _ in range(2):
            screen.output = ""
            screen.read_until("Ctrl-C ends it")
        assert "key-7" in screen.output
        screen.press(CTRL_C)
        assert screen.wait() == 0
    assert "Traceback" not in screen.output


def test_watching_a_pipe_prints_table_after_table(cli):
    with subprocess.Popen(
        [
            *INTERRUPTED,
            *MODULE,
            "bucket",
            "list",
            "--near",
            "100",
            "--watch",
            "0.1",
            "--url",
            cli.url,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        tables = 0
        while tables < 3:
            tables += "key-7" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")


def test_a_limited_bucket_is_red_on_a_terminal(cli):
    with terminal("bucket", "list", "--near", "100", "--url", cli.url, columns=120) as screen:
        assert screen.wait() == 0
    assert "\x1b[31min " in screen.output


@pytest.mark.usefixtures("used")
def test_bars_can_be_drawn_in_ascii(cli):
    args = ("bucket", "list", "-r", "gpt-5", "--url", cli.url)
    found = run_command(*MODULE, *args, PYTHONIOENCODING="ascii")
    assert found.stdout.isascii()
    bars = [re.search(r" ([-=.]{10}) ", line)[1] for line in found.stdout.splitlines()[2:]]
    assert bars == ["=========.", "-.........", "=====.....", ".........."]  # what is left
