"""Refunds and adjustments are written if at all possible, later if need be."""

import asyncio
import logging
import threading
import time
from contextlib import ExitStack

import pytest
from zae_limiter_contract._async.world import stored
from zae_limiter_contract._sync.world import stored as sync_stored

from tests.integration.sqlite.faults import (
    Failure,
    HeldFile,
    WatchedClock,
    a_failing_block,
    sqlite_write_lock,
)
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

# Long enough for a busy machine to open a store and to wake a thread in time.
TIMEOUT = 1.0
RPM = Limit.per_minute("rpm", 100)


async def used_up(limiter, entity_id):
    async with limiter.acquire(entity_id, "api", {"rpm": 1}):
        pass


# --- the store is busy for longer than a caller would wait


async def test_a_refund_that_queued_behind_calls_in_vain_is_still_written(sqlite_url, path, clock):
    """The writer is free for it only when the file has been held for a whole timeout."""
    async with await Repository.open(url=sqlite_url, clock=clock, request_timeout=TIMEOUT) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([RPM])
        await used_up(limiter, "other")
        with a_failing_block():
            async with limiter.acquire("user", "api", {"rpm": 40}):
                held = HeldFile(path)
                in_vain = asyncio.create_task(used_up(limiter, "other"))
                await asyncio.sleep(0.02)  # the writer waits on its behalf
                timer = held.free_in(1.5 * TIMEOUT)
                raise Failure
        timer.join()
        with pytest.raises(RateLimiterUnavailable):
            await in_vain
        assert repo.lost_settlements == 0
        assert await limiter.available("user", "api") == {"rpm": 100}


async def test_an_adjustment_behind_a_long_batch_is_still_written(sqlite_url, path, clock):
    watched = WatchedClock()
    async with await Repository.open(
        url=sqlite_url, clock=watched, request_timeout=TIMEOUT
    ) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([RPM])
        async with limiter.acquire("user", "api", {"rpm": 40}) as lease:
            await lease.adjust(rpm=5)
            watched.at_reading[2] = lambda: time.sleep(1.5 * TIMEOUT)
            slow = asyncio.create_task(used_up(limiter, "other"))
            await asyncio.sleep(0.02)
        await slow
        assert repo.lost_settlements == 0
        assert await limiter.available("user", "api") == {"rpm": 55}


def test_a_refund_of_a_thread_that_queued_behind_another_is_still_written(sqlite_url, path, clock):
    with SyncRepository.open(url=sqlite_url, clock=clock, request_timeout=TIMEOUT) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults([RPM])

        def wait_in_vain():
            with pytest.raises(RateLimiterUnavailable), limiter.acquire("user", "api", {"rpm": 1}):
                pass

        thread = threading.Thread(target=wait_in_vain)
        with a_failing_block(), limiter.acquire("user", "api", {"rpm": 40}):
            held = HeldFile(path)
            thread.start()
            time.sleep(0.02)
            timer = held.free_in(1.5 * TIMEOUT)
            raise Failure
        thread.join()
        timer.join()
        assert repo.lost_settlements == 0
        assert limiter.available("user", "api") == {"rpm": 100}


# --- what cannot be written at once


@pytest.fixture
def errors(caplog):
    """What was logged as an error."""
    caplog.set_level(logging.ERROR, "zae_limiter")
    return lambda: [each.message for each in caplog.records]


async def test_a_give_back_that_fails_leaves_the_cancellation_as_it_is(sqlite_url, errors):
    clock, reached, cancelled = WatchedClock(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def charging():
        loop.call_soon_threadsafe(reached.set)
        cancelled.wait(5)

    def settling():
        raise OSError("no clock")

    clock.at_reading = {1: charging, 2: settling}
    async with await Repository.open(url=sqlite_url, clock=clock) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([RPM])
        task = asyncio.create_task(used_up(limiter, "user"))
        await asyncio.wait_for(reached.wait(), 5)
        task.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stored(repo)
        assert (repo.lost_settlements, errors()) == (0, [])
        assert await limiter.available("user", "api") == {"rpm": 100}


async def test_a_refund_that_fails_leaves_the_blocks_own_error_as_it_is(sqlite_url, path, errors):
    async with await Repository.open(url=sqlite_url, request_timeout=TIMEOUT) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([RPM])
        with a_failing_block():
            async with limiter.acquire("user", "api", {"rpm": 40}):
                held = HeldFile(path)
                raise Failure
        held.free()
        await stored(repo)
        assert (repo.lost_settlements, errors()) == (0, [])
        assert await limiter.available("user", "api") == {"rpm": 100}


def test_a_settlement_that_sqlite_refuses_is_made_later(sqlite_url, path, clock, errors):
    with SyncRepository.open(url=sqlite_url, clock=clock, request_timeout=TIMEOUT) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults([RPM])
        with limiter.acquire("user", "api", {"rpm": 40}) as lease:
            lease.adjust(rpm=5)
            others = ExitStack()
            others.enter_context(sqlite_write_lock(path))
        others.close()
        sync_stored(repo)
        assert (repo.lost_settlements, errors()) == (0, [])
        assert limiter.available("user", "api") == {"rpm": 55}
