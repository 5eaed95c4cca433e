"""watch prints each threshold that is raised once, on every engine, and only reads."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.ops.cli.stores import on_dynamodb, sqlite_first
from tests.ops.cli.terminal import INTERRUPTIBLE, MODULE, environment
from tests.support.dynamodb import Proxy, shared_endpoint
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

TOKENS = Limit.quota("tokens", 1000, per="month", zone="Europe/Berlin")
USD = Limit.budget("usd", "2.00", per="month")
FIELDS = [
    *("entity_id", "resource", "limit_name", "percent", "used", "amount"),
    *("window_start", "window_end"),
]
EVENT_TITLES = ["entity", "resource", "limit", "reached", "used", "of", "window", "ends"]
INTERRUPTED = (sys.executable, "-c", INTERRUPTIBLE)
# A shell starts background commands like this.
IN_BACKGROUND = (
    sys.executable,
    "-c",
    INTERRUPTIBLE.replace("default_int_handler", "SIG_IGN"),
)


class Spender:
    """A client of the watched store; what it has written is there when a call returns."""

    def __init__(self, url):
        self._url = url
        with self.open() as repository:
            repository.set_system_defaults([TOKENS, USD])

    @contextmanager
    def open(self):
        with SyncRepository.open(url=self._url) as repository:
            yield repository

    def use(self, entity_id="user-7", resource="llama", **amounts):
        with (
            self.open() as repository,
            SyncRateLimiter(repository).acquire(entity_id, resource, amounts),
        ):
            pass


@pytest.fixture
def spender(url):
    return Spender(url)


@contextmanager
def watching(url, *args, by=INTERRUPTED):
    """A process that watches llama, often."""
    command = [*by, *MODULE, "watch", "-r", "llama", "--interval", "0.1", "--url", url, *args]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def events(process, count):
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def percents(process, count):
    return [event["percent"] for event in events(process, count)]


# --- one look


@sqlite_first
def test_one_look_shows_what_was_raised_in_the_running_windows(cli, spender):
    spender.use(tokens=800, usd="1.25")
    spender.use("user-8", tokens=499)
    spender.use("user-9", "other", tokens=1000)
    ran = cli("watch", "--resource", "llama", "--once", "--output", "json")
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert (ran.code, ran.err) == (0, "")
    assert {(each["entity_id"], each["limit_name"], each["percent"]) for each in found} == {
        ("user-7", "tokens", 50),
        ("user-7", "tokens", 80),
        ("user-7", "usd", 50),
    }
    [budget] = [each for each in found if each["limit_name"] == "usd"]
    assert (budget["used"], budget["amount"]) == ("1.25", "2.00")
    assert list(budget) == FIELDS
    assert re.fullmatch(r"\d{4}-\d\d-01T00:00:00\+00:00", budget["window_end"])


def test_people_get_a_table(cli, spender):
    spender.use(tokens=1000, usd="1")
    head, _, *rows = cli("watch", "-r", "llama", "-r", "llama", "--once").out.splitlines()
    assert head.split() == EVENT_TITLES
    assert [row.split()[2:8] for row in rows] == [
        ["tokens", "50", "%", "1,000", "1,000", rows[0].split()[7]],
        ["tokens", "80", "%", "1,000", "1,000", rows[0].split()[7]],
        ["tokens", "100", "%", "1,000", "1,000", rows[0].split()[7]],
        ["usd", "50", "%", "1.00", "USD", "2.00"],
    ]


def test_a_look_that_finds_nothing_says_so(cli, spender):
    ran = cli("watch", "-r", "gpt-4", "-r", "gpt-44", "--once")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        "nothing was charged on 'gpt-44' so far (did you mean 'gpt-4'?)",
        "no threshold was raised in the running windows",
    ]


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("-r", ""),
        ("-r", "a b"),
        ("-r", "gpt-4", "--interval", "0"),
        ("-r", "gpt-4", "--output", "csv"),
    ],
)
def test_wrong_options_are_refused(cli, args):
    cli("watch", "--once", *args).error(2)


def test_a_store_that_is_missing_is_an_error(cli, tmp_path):
    cli("watch", "-r", "gpt-4", "--url", f"sqlite:///{tmp_path}/none.db").error(1)


# --- looking again and again


@sqlite_first
def test_each_new_threshold_is_printed_once(url, spender, engine):
    spender.use(tokens=500)
    with watching(url, "--output", "json") as process:
        assert percents(process, 1) == [50]
        spender.use(tokens=500)
        assert percents(process, 2) == [80, 100]
        with spender.open() as repository:
            repository.reset_bucket("user-7", "llama")
        spender.use("user-8", tokens=600)
        [other] = events(process, 1)
        assert (other["entity_id"], other["percent"]) == ("user-8", 50)
        spender.use(tokens=500)
        [again] = events(process, 1)
        assert (again["entity_id"], again["percent"], again["used"]) == ("user-7", 50, 500)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


def test_in_the_background_it_ends_on_sigterm(url, spender):
    spender.use(tokens=500)
    with watching(url, "--output", "json", by=IN_BACKGROUND) as process:
        assert percents(process, 1) == [50]
        process.send_signal(signal.SIGINT)
        spender.use(tokens=300)
        assert percents(process, 1) == [80]  # it goes on
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")


@on_dynamodb
def test_it_survives_a_store_that_is_down_with_one_line(url, spender, engine):
    with Proxy(shared_endpoint()) as proxy:
        through = re.sub(r"endpoint_url=[^&]*", f"endpoint_url={proxy.url}", url)
        spender.use(tokens=500)
        with watching(through, "--output", "json") as process:
            assert percents(process, 1) == [50]
            with proxy.refusing():
                line = process.stderr.readline()
                assert line.startswith("the store does not answer, trying again: no connection")
                spender.use(tokens=300)
            assert percents(process, 1) == [80]
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "the store answers again\n")


@on_dynamodb
def test_it_lists_by_resource_and_writes_nothing(url, spender, engine):
    spender.use(tokens=500)
    with Proxy(shared_endpoint()) as proxy:
        through = re.sub(r"endpoint_url=[^&]*", f"endpoint_url={proxy.url}", url)
        with proxy.measure() as seen, watching(through, "--output", "json", "--once") as process:
            assert percents(process, 1) == [50]
            assert process.wait(20) == 0
    assert "Query" in seen.operations
    assert "Scan" not in seen.operations
    assert seen.wcu == 0


def test_a_store_in_memory_can_be_watched(cli):
    assert cli("watch", "-r", "gpt-4", "--once", "--url", "memory://").code == 0
