"""gevent: a greenlet that is killed or times out in an acquire loses no token, and fails no other.

Each test runs a program of its own: monkey-patching is for a whole process.
"""

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.dynamodb import Proxy, shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import Limit, SyncRepository
from zae_limiter.embedded.sqlite.file_lock import FileLock

pytest.importorskip("gevent", reason="gevent is not installed")

PROGRAM = Path(__file__).with_name("program.py")
CAPACITY = 100_000
RPM = Limit.custom("rpm", CAPACITY, 1, 86_400)  # refills nothing while the test runs


def run(url, namespace, processes=1, limit=RPM, program=PROGRAM):
    """Run the program in so many processes at once; return the sum of their outcomes."""
    with SyncRepository.open(namespace, url=url) as repo:
        repo.set_system_defaults([limit])
        running = [
            subprocess.Popen(
                [sys.executable, str(program), url, namespace, str(seed)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in range(processes)
        ]
        totals = {}
        for each in running:
            said, _ = each.communicate(timeout=60)
            assert each.returncode == 0
            for outcome, count in json.loads(said).items():
                totals[outcome] = totals.get(outcome, 0) + count
        # Not what the bucket says: it may have been forgotten between two processes.
        hours, _ = repo.get_usage_snapshots("user-1", "api", "hourly")
    return totals, sum(hour.counters.get(limit.name, 0) for hour in hours)


def check(totals, taken):
    assert not [outcome for outcome in totals if outcome.startswith("failed")], totals
    interrupted = totals.get("timed out", 0) + totals.get("killed", 0)
    assert interrupted > 5, totals  # else the test shows nothing
    assert totals["lost"] == 0
    assert taken == totals["kept"], totals


@pytest.fixture
def dynamodb(monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    endpoint = shared_endpoint()
    with temporary_table(endpoint) as stack, Proxy(endpoint) as proxy:
        proxy.link.request_ms = proxy.link.answer_ms = 5
        yield store_url(stack, proxy.url)


def test_dynamodb(dynamodb):
    check(*run(dynamodb, "default"))


def test_sqlite_shared_by_processes(tmp_path):
    """Greenlets wait for the file lock, which other processes hold most of the time."""
    with holding_now_and_then(f"{tmp_path}/limits.db"):
        check(*run(f"sqlite:///{tmp_path}/limits.db", "default", processes=2))


# Greenlets and the file lock are also in the test before.
@pytest.mark.parametrize("engine", ["dynamodb", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_greenlets_that_wait(engine, request, tmp_path):
    sqlite = f"sqlite:///{tmp_path}/limits.db"
    url = sqlite if engine == "sqlite" else request.getfixturevalue("dynamodb")
    program = Path(__file__).with_name("waiting_program.py")
    check(*run(url, "default", 2, Limit.custom("rps", 5, 40, 1), program))


@contextmanager
def holding_now_and_then(path):
    """Hold the lock of a SQLite file for most of the time, a moment each."""
    over = threading.Event()

    def hold():
        lock = FileLock(path)
        while not over.wait(0.001):
            if lock.acquire(time.monotonic() + 1):
                time.sleep(0.005)
            lock.release()
        lock.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
