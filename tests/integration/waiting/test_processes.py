"""Several processes wait for one bucket of a real store."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

from zae_limiter import Limit, Repository

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[3]
LATE_S = 1.0  # a caller goes on at most that long after its due; later, its reservation has lapsed
HORIZON_S = 60.0
STOP_S = 20.0
SLACK_S = 0.3  # between the moment at which a caller goes on and the one that it prints


@pytest.fixture(params=["dynamodb", pytest.param("sqlite", marks=pytest.mark.slow)])
def url(request):
    return request.getfixturevalue(f"{request.param}_url")


class Child:
    """A process of waiting callers; ``events`` are lists of moments by kind."""

    def __init__(self, url, *arguments):
        command = [sys.executable, "-m", "tests.integration.waiting.child", url]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        self.events = defaultdict(list)
        assert json.loads(self.process.stdout.readline()) == {"ready": True}
        self._reader = threading.Thread(target=self._read, daemon=True)

    def go(self):
        self._reader.start()
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def join(self):
        self._reader.join(120)

    def end(self):
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        self.process.stdin.close()
        self.process.stdout.close()

    def _read(self):
        for line in self.process.stdout:
            for kind, value in json.loads(line).items():
                self.events[kind].append(value)


def configure(url, limit):
    async def store():
        provision = "table" if url.startswith("dynamodb") else "stack"
        async with Repository.open(url=url, provision=provision) as repo:
            await repo.set_system_defaults([limit])

    asyncio.run(store())


def run(
    url,
    limit,
    *,
    processes,
    callers,
    cancels=0.0,
    within_s=1.0,
    timeout_s=50.0,
    meanwhile=lambda children: None,
):
    configure(url, limit)
    children, how = [], (callers, cancels, within_s, timeout_s)
    try:
        children += [Child(url, seed, *how) for seed in range(processes)]
        for child in children:
            child.go()
        meanwhile(children)
        for child in children:
            child.join()
    finally:
        for child in children:
            child.end()
    return children


def all_events(children, kind):
    return sorted(value for child in children for value in child.events[kind])


def check_bound(children, limit):
    """Entries in any window are at most capacity + accrued + what was given back meanwhile."""
    entered = all_events(children, "entered")
    given_back = all_events(children, "given_back")
    per_s = limit.refill_amount / limit.refill_period_seconds
    for first, from_s in enumerate(entered):
        for last in range(first, len(entered)):
            window_s = entered[last] - from_s + LATE_S + SLACK_S
            given = sum(from_s - HORIZON_S <= each <= entered[last] for each in given_back)
            assert last - first + 1 <= limit.capacity + per_s * window_s + given


def test_processes_are_served_at_the_rate_of_the_bucket_and_write_once_for_each(url):
    limit = Limit.custom("x", 5, 25, 1)
    children = run(url, limit, processes=4, callers=20)
    entered = all_events(children, "entered")
    assert len(entered) == 80
    assert not all_events(children, "rejected")
    # 75 of them wait for a token each, beginning when the first one has come.
    assert 2.9 < entered[-1] - entered[0] < 3.0 + SLACK_S + 1.0
    check_bound(children, limit)
    writes = sum(all_events(children, "writes"))
    assert writes <= 1.3 * len(entered)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("callers", "within_s", "lasts_s"),
    [
        pytest.param(50, 1.0, 39.0, id="all arrive at once"),
        # Four arrive for each that goes on: after 20 s there is work for 57 more.
        pytest.param(96, 20.0, 75.8, id="up to a minute is queued while they arrive"),
    ],
)
def test_eight_processes_write_at_most_1_3_times_per_admission(url, callers, within_s, lasts_s):
    limit = Limit.custom("x", 10, 10, 1)
    how = {"within_s": within_s, "timeout_s": 59.5}
    children = run(url, limit, processes=8, callers=callers, **how)
    entered, writes = all_events(children, "entered"), sum(all_events(children, "writes"))
    refused = sum(all_events(children, "refused"))
    print(f"{len(entered)} admissions, {writes} writes, {refused} refused")  # noqa: T201 - with -s
    assert len(entered) == 8 * callers
    assert writes <= 1.3 * len(entered)
    assert lasts_s - 1.0 < entered[-1] - entered[0] < lasts_s + 1.0
    check_bound(children, limit)


@pytest.mark.slow
def test_cancels_stops_and_crashes_never_let_more_through_than_the_bound(url):
    limit = Limit.custom("x", 5, 10, 1)

    def trouble(children):
        time.sleep(3)
        children[0].process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        children[1].process.kill()
        time.sleep(STOP_S - 2)
        children[0].process.send_signal(signal.SIGCONT)

    children = run(url, limit, processes=5, callers=50, cancels=0.3, meanwhile=trouble)
    check_bound(children, limit)
    stopped = children[0].events
    outcomes = sum(len(stopped[kind]) for kind in ("entered", "rejected", "given_back"))
    assert outcomes == 50  # its callers have asked again, or were rejected
    others = [child.events for child in children[2:]]
    assert all(len(each["entered"]) + len(each["given_back"]) == 50 for each in others)
