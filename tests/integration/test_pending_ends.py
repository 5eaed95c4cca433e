"""What becomes of ends of blocks that wait: bounds, event loops, forks, renewals, the breaker."""

import asyncio
import os
import time

import pytest
from zae_limiter_contract._async.world import stored as async_stored
from zae_limiter_contract._sync.world import stored

from tests.support.faulty_buckets import Fault, open_faulty
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter._sync.pending_ends import MAX_PENDING
from zae_limiter.testing import FakeClock, outage

BUDGET = Limit.budget("usd", 10, per="month", hold_ttl=600)
PLENTY = Limit.per_hour("tokens", 1_000_000)


def used(limiter, entity_id="user"):
    (status,) = limiter.check_availability(entity_id, "api").statuses
    return status.used, status.held


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def faulty(clock):
    """A limiter in memory, and its buckets, whose settlements can fail while renewals do not."""
    repository, buckets = open_faulty(clock)
    with repository:
        repository.set_system_defaults([BUDGET])
        yield SyncRateLimiter(repository), buckets


def eventually(holds):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def test_holds_are_renewed_until_the_end_is_stored(faulty, clock):
    limiter, buckets = faulty
    with limiter.acquire("user", "api", {"usd": 4}) as lease:
        lease.settle(usd=6)
        buckets.fault = Fault.NOT_WRITTEN
    for _ in range(4):  # 20 minutes: a hold that nobody renews has expired after 15
        clock.advance(seconds=300)
        before = buckets.renewals
        eventually(lambda before=before: buckets.renewals > before)
        with pytest.raises(RateLimitExceeded):
            limiter.acquire("user", "api", {"usd": 7}).__enter__()
    assert used(limiter) == (0, 4)
    buckets.fault = Fault.NONE
    stored(limiter.repository)
    assert used(limiter) == (6, 0)


def test_an_outcome_that_stays_unknown_is_lost_and_never_sent_again(faulty, caplog):
    limiter, buckets = faulty
    with limiter.acquire("user", "api", {"usd": 4}) as lease:
        lease.settle(usd=6)
        buckets.fault = Fault.UNKNOWN_WRITTEN
    buckets.fault = Fault.NONE
    stored(limiter.repository)
    assert limiter.repository.lost_settlements == 1
    assert "could not settle" in caplog.text
    assert used(limiter) == (6, 0)


def test_beyond_a_bound_the_newest_ends_are_given_up(clock, caplog):
    with SyncRepository.open(url="memory://", clock=clock) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults([PLENTY])
        blocks = [limiter.acquire("user", "api", {"tokens": 1}) for _ in range(MAX_PENDING + 3)]
        for block in blocks:
            block.__enter__().settle(tokens=2)
        with outage(repo):
            for block in blocks:
                block.__exit__(None, None, None)
            assert repo.pending_settlements == MAX_PENDING
            assert repo.lost_settlements == 3
        assert caplog.text.count("could not settle") == 3
        stored(repo)
        assert repo.lost_settlements == 3
        (state,) = repo.get_buckets("user", "api")
        assert state.total_consumed_milli == (2 * MAX_PENDING + 3) * 1000


def test_a_forked_child_does_not_repeat_the_ends_of_its_parent(tmp_path, clock):
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRepository.open(url=url, clock=clock) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults([BUDGET])
        fault = outage(repo)
        with limiter.acquire("user", "api", {"usd": 1}) as lease:
            lease.settle(usd=3)
            fault.__enter__()
        child = os.fork()
        if not child:
            fault.__exit__(None, None, None)
            time.sleep(1)
            os._exit(repo.pending_settlements)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        with SyncRepository.open(url=url, clock=clock) as other:
            assert used(SyncRateLimiter(other)) == (0, 1)
        fault.__exit__(None, None, None)
        stored(repo)
        assert used(limiter) == (3, 0)


def test_the_next_event_loop_stores_the_ends_of_one_that_was_closed(clock):
    repo = asyncio.run(_opened(clock))

    async def end_in_outage():
        fault = outage(repo)
        async with RateLimiter(repo).acquire("user", "api", {"usd": 1}) as lease:
            await lease.settle(usd=3)
            fault.__enter__()
        return fault

    asyncio.run(end_in_outage()).__exit__(None, None, None)
    assert repo.pending_settlements == 1

    async def use_and_wait():
        limiter = RateLimiter(repo)
        async with limiter.acquire("user", "api", {"usd": 1}):
            pass
        await async_stored(repo)
        (status,) = (await limiter.check_availability("user", "api")).statuses
        await repo.close()
        return status.used, status.held

    assert asyncio.run(use_and_wait()) == (4, 0)


def test_closing_in_another_event_loop_stores_what_is_left(clock):
    repo = asyncio.run(_opened(clock, "memory://next-loop"))
    other = SyncRepository.open(url="memory://next-loop", clock=clock)

    async def end_in_outage():
        fault = outage(repo)
        async with RateLimiter(repo).acquire("user", "api", {"usd": 1}) as lease:
            await lease.settle(usd=3)
            fault.__enter__()
        return fault

    asyncio.run(end_in_outage()).__exit__(None, None, None)
    asyncio.run(repo.close())
    assert repo.lost_settlements == 0
    with other:
        assert used(SyncRateLimiter(other)) == (3, 0)


async def _opened(clock, url="memory://"):
    repo = await Repository.open(url=url, clock=clock)
    await repo.set_system_defaults([BUDGET])
    return repo
