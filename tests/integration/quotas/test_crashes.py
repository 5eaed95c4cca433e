"""Processes that die or stop with calls in flight: a budget ends with the costs that were settled.

The calls of a dead process return what they held after 1.5 times the TTL of holds at the latest. A
stopped process that comes back charges the cost of its calls once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.testing.clock import FakeClock

ROOT = Path(__file__).parents[3]
HOLD_TTL = 2
LATEST_S = 1.5 * HOLD_TTL + 2
BUDGET = Limit.budget("usd", 100, per="year", hold_ttl=HOLD_TTL)


@pytest.fixture(params=["sqlite", "dynamodb"])
def url(request):
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def repo(url):
    provision = "table" if url.startswith("dynamodb") else "stack"
    with SyncRepository.open(url=url, provision=provision, request_timeout=30) as repo:
        repo.set_system_defaults([BUDGET])
        yield repo


@contextmanager
def spenders(url, processes, calls):
    """Processes that have settled some calls, and have others in flight; their reports, by pid."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.integration.quotas.spenders",
            url,
            str(processes),
            str(calls),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        reports = [json.loads(child.stdout.readline()) for _ in range(processes)]
        yield child, {each["pid"]: Decimal(each["settled"]) for each in reports}
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def state(repo):
    return repo.get_bucket("team", "gpt-4", "usd")


def check_kills(url, repo, processes, calls):
    with spenders(url, processes, calls) as (_, settled):
        assert state(repo).held == processes * calls * Decimal("0.05")
        for pid in settled:
            os.kill(pid, signal.SIGKILL)
        time.sleep(LATEST_S)
        after = state(repo)
        assert (after.used, after.held) == (sum(settled.values()), 0)
        assert after.available == 100 - sum(settled.values())
    with SyncRateLimiter(repo).acquire("team", "gpt-4", {"usd": after.available}) as lease:
        lease.settle(usd=0)  # all of it can be charged
    assert state(repo).total_consumed_milli == sum(settled.values()) * 10**9


@pytest.mark.fast("dynamodb")
def test_the_holds_of_killed_processes_return(url, repo):
    check_kills(url, repo, processes=2, calls=5)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_holds_of_many_killed_processes_return(url, repo):
    check_kills(url, repo, processes=20, calls=10)


@pytest.mark.fast("sqlite")
def test_a_process_that_was_stopped_charges_its_costs_once(url, repo):
    with spenders(url, 1, 5) as (child, settled):
        [(pid, before)] = settled.items()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(LATEST_S)
        limiter = SyncRateLimiter(repo)
        with limiter.acquire("team", "gpt-4", {"usd": "1"}) as lease:  # returns what has expired
            lease.settle(usd="0.5")
        assert state(repo).used == before + Decimal("0.5")
        os.kill(pid, signal.SIGCONT)
        child.stdin.write(b"\n")
        child.stdin.flush()
        late = Decimal(json.loads(child.stdout.readline())["late"])
        assert (state(repo).used, state(repo).held) == (before + Decimal("0.5") + late, 0)


@pytest.mark.parametrize("abandoned", [200])
async def test_the_holds_of_abandoned_calls_return_in_memory(memory_url, abandoned):
    clock = FakeClock()
    async with await Repository.builder().url(memory_url).clock(clock).build() as repo:
        await repo.set_system_defaults([BUDGET])
        limiter, cost = RateLimiter(repo), Decimal("0.000000001")
        for number in range(2 * abandoned):
            block = limiter.acquire("team", "gpt-4", {"usd": "0.05"})
            lease = await block.__aenter__()
            if number % 2:
                await lease.settle(usd=cost)
                await block.__aexit__(None, None, None)
        del block, lease
        before = await repo.get_bucket("team", "gpt-4", "usd")
        assert before.held == abandoned * Decimal("0.05")
        clock.advance(seconds=LATEST_S)
        after = await repo.get_bucket("team", "gpt-4", "usd")
        assert (after.used, after.held) == (abandoned * cost, 0)
        assert after.available == 100 - after.used
