"""Counts are noted without a call, and stored in the background when they have waited."""

import asyncio
import subprocess
import sys
import time

import pytest

from tests.unit.test_charging import NOW, NS, RPM, configured
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter._async.tally_keeper import TallyKeeper
from zae_limiter._sync.tally_keeper import TallyKeeper as SyncTallyKeeper
from zae_limiter.admission.request import AcquireEnd
from zae_limiter.admission.tally import Refusals, Tally
from zae_limiter.models.status import LimitStatus
from zae_limiter.refusal import LimitedBy
from zae_limiter.tallies import STORE_AFTER_S, NotedTallies

LIMITS = configured(RPM)
PATIENCE_S = 20.0
SOON_S = 0.02


class Clock:
    def __init__(self):
        self.now_ms = NOW

    def __call__(self):
        return self.now_ms


def rejection(entity_id="user-1", amount=5, clock=None, parent_id=None):
    buckets = ((entity_id, LIMITS), *([(parent_id, LIMITS)] if parent_id else []))
    status = LimitStatus(parent_id or entity_id, "api", "rpm", RPM, 1, amount, True, 1.0)
    return AcquireEnd("api", buckets, (status,), False, clock or Clock())


def tally(rejected, amount, *, of_parent=False, entity_id=""):
    """The tally of rejections by one limit, of the entity that counts them unless it is named."""
    by_rpm = LimitedBy(entity_id, "", "rpm")
    refusals = Refusals(by_rpm, NOW // 1000, by_rpm, rejected)
    return Tally(rejected, int(of_parent), 0, {"rpm": amount}, refusals=refusals)


class Stored:
    """A store that takes what it is given, unless it is out of order."""

    def __init__(self, noted):
        self.noted = noted
        self.tallies = {}
        self.attempts = 0
        self.is_broken = False

    def sync_store(self, due):
        self.attempts += 1
        if self.is_broken:
            for bucket in due:
                self.noted.postpone(bucket)
            raise RuntimeError("out of order")
        for bucket in due:
            self.tallies[bucket[1]] = self.noted.take(bucket).total()

    async def store(self, due):
        self.sync_store(due)


def until(condition):
    ends_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


async def auntil(condition):
    ends_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_s
        await asyncio.sleep(0.005)


@pytest.fixture
def noted():
    return NotedTallies(SOON_S)


@pytest.fixture
def stored(noted):
    return Stored(noted)


async def test_they_are_stored_in_the_event_loop_that_noted_them(noted, stored):
    keeper = TallyKeeper(noted, stored.store)
    for amount in (3, 8, 5):
        keeper.count(NS, rejection(amount=amount))
    assert stored.tallies == {}
    await auntil(lambda: stored.tallies)
    assert stored.tallies == {"user-1": tally(3, 8)}
    assert not noted.by_bucket


def test_they_are_stored_in_a_thread_that_ends(noted, stored):
    keeper = SyncTallyKeeper(noted, stored.sync_store)
    keeper.count(NS, rejection(parent_id="team"))
    until(lambda: len(stored.tallies) == 2)
    assert stored.tallies == {
        "user-1": tally(1, 5, entity_id="team"),
        "team": tally(1, 5, of_parent=True),
    }


def test_those_of_a_loop_that_has_ended_are_stored_by_the_next(stored):
    noted = stored.noted
    keeper = TallyKeeper(noted, stored.store)

    async def note(entity_id, wait_for):
        keeper.count(NS, rejection(entity_id))
        await auntil(lambda: len(stored.tallies) >= wait_for)

    asyncio.run(note("user-1", 0))
    asyncio.run(note("user-2", 2))
    assert stored.tallies.keys() == {"user-1", "user-2"}


async def test_a_store_that_fails_is_asked_again_and_nobody_is_told(noted, stored):
    stored.is_broken = True
    keeper = TallyKeeper(noted, stored.store)
    keeper.count(NS, rejection())
    await auntil(lambda: stored.attempts >= 2)
    keeper.count(NS, rejection())
    stored.is_broken = False
    await auntil(lambda: stored.tallies)
    assert stored.tallies == {"user-1": tally(2, 5)}


async def test_none_are_stored_after_closing(noted, stored):
    keeper = TallyKeeper(noted, stored.store)
    keeper.count(NS, rejection())
    keeper.close()
    keeper.count(NS, rejection())
    await asyncio.sleep(5 * SOON_S)
    assert stored.tallies == {}
    assert noted.by_bucket


def test_counts_that_a_refused_write_puts_back_keep_their_age():
    noted, bucket, other = NotedTallies(), (NS, "user-1", "api"), (NS, "user-2", "api")
    noted.note(bucket, Tally(1), LIMITS, Clock())
    assert noted.due() == []
    taken = noted.take(bucket)
    old = taken._replace(since_s=taken.since_s - STORE_AFTER_S)
    noted.note(other, Tally(1), LIMITS, Clock())
    noted.note(bucket, Tally(1), LIMITS, Clock())
    noted.put_back(bucket, old)
    assert noted.due() == [bucket]
    assert noted.next_due_s() == 0
    noted.postpone(bucket)
    assert noted.due() == []
    assert STORE_AFTER_S - 5 < noted.next_due_s() <= STORE_AFTER_S
    assert noted.take(bucket).total() == Tally(2)


PROGRAM = """
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
repository = SyncRepository.open(url="memory://")
limiter = SyncRateLimiter(repository)
try:
    with limiter.acquire("user", "api", {"rpm": 2}, [Limit.per_minute("rpm", 1)]):
        pass
except RateLimitExceeded:
    print("rejected")
"""


def test_counts_that_wait_keep_no_process_alive():
    began_s = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        timeout=STORE_AFTER_S,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("rejected\n", "", 0)
    assert time.monotonic() - began_s < STORE_AFTER_S


async def test_a_caller_that_wakes_after_its_deadline_is_rejected_and_counted():
    """By then the tokens are there, and no limit is exceeded."""
    async with Repository.open(url="memory://") as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([Limit("rps", 10, 10, 5)])
        async with limiter.acquire("user-1", "api", {"rps": 10}):
            pass
        acquire = limiter.acquire("user-1", "api", {"rps": 1}, timeout=1)
        waiting = asyncio.create_task(acquire.__aenter__())
        while not (repo.charging.waiting_lines or waiting.done()):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        time.sleep(1.5)  # noqa: ASYNC251 - a program that blocks its event loop
        with pytest.raises(RateLimitExceeded) as rejected:
            await waiting
        assert not any(status.exceeded for status in rejected.value.statuses)
        async with limiter.acquire("user-1", "api", {"rps": 1}):  # stores the counts
            pass
        (hour,), _ = await repo.get_usage_snapshots("user-1", "api", "hourly")
        assert (hour.rejected, hour.waited) == (1, 1)
