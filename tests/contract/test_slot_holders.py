"""Processes that hold slots: killed, stopped, forked, on event loops, threads and greenlets."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.contract.engines import dynamodb_url, sqlite_url
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

HOLDER = Path(__file__).with_name("slot_holder.py")
LEASE_TTL = 3
# Renewed every third of it: a machine that stalls for less than the rest loses nothing.
RENEWED_TTL = 6
LONG_TTL = 60  # where nothing is to expire or to be renewed


@pytest.fixture(params=["sqlite", "dynamodb"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return dynamodb_url(request.getfixturevalue("dynamodb_table"))


@pytest.fixture
def lease_ttl():
    return LEASE_TTL


@pytest.fixture
def limiter(url, lease_ttl):
    with SyncRepository.open(url=url) as repo:
        repo.set_system_defaults([Limit.concurrent("parallel", 1, lease_ttl=lease_ttl)])
        yield SyncRateLimiter(repo)


@contextmanager
def holder(url, mode="sync"):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.Popen(
        [sys.executable, str(HOLDER), url, mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def is_free(limiter):
    try:
        with limiter.acquire("user", "api", {}):
            return True
    except RateLimitExceeded:
        return False


def wait_until_free(limiter):
    """Return how long that took."""
    with Stopwatch() as watch:
        start = time.monotonic()
        while not is_free(limiter):
            assert time.monotonic() < start + 60
            time.sleep(0.02)
    return watch


def test_the_slot_of_a_killed_process_is_free_when_its_lease_has_expired(limiter, url):
    with holder(url) as child:
        assert child.stdout.readline() == "held\n"
        assert not is_free(limiter)
        child.send_signal(signal.SIGKILL)
        child.wait()
        watch = wait_until_free(limiter)
        assert watch.within(LEASE_TTL + 1 + 1), watch  # and what a rejection is remembered


@pytest.mark.slow
@pytest.mark.parametrize("lease_ttl", [RENEWED_TTL])
@pytest.mark.parametrize("mode", ["sync", "async", "gevent"])
def test_a_slot_is_held_for_longer_than_its_ttl(limiter, url, mode, lease_ttl):
    if mode == "gevent":
        pytest.importorskip("gevent")
    with holder(url, mode) as child:
        assert child.stdout.readline() == "held\n"
        end = time.monotonic() + 2 * lease_ttl
        while time.monotonic() < end:
            assert not is_free(limiter)
            time.sleep(0.1)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "lost False\n"
        child.wait()
        watch = wait_until_free(limiter)
        assert watch.within(1), watch


@pytest.mark.slow
def test_a_process_that_was_stopped_has_lost_its_slot(limiter, url):
    with holder(url) as child:
        assert child.stdout.readline() == "held\n"
        child.send_signal(signal.SIGSTOP)
        wait_until_free(limiter)
        with limiter.acquire("user", "api", {}):
            child.send_signal(signal.SIGCONT)
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "lost True\n"
            child.wait()
            assert not is_free(limiter), "it has given back a slot of another"
        assert is_free(limiter)


@pytest.mark.parametrize("lease_ttl", [LONG_TTL])
def test_a_forked_child_neither_holds_nor_frees_the_slot_of_its_parent(limiter, url):
    with holder(url, "fork") as child:
        assert child.stdout.readline() == "in the child: lost True\n"
        assert child.stdout.readline() == "held\n"
        assert not is_free(limiter)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "lost False\n"
