"""Rejected acquires read the file and write nothing; their count is stored with other writes."""

import asyncio
import sqlite3
import time
from contextlib import closing

import pytest

from tests.integration.sqlite.faults import HeldFile
from zae_limiter import (
    EntityExistsError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.embedded.housekeeping import EVERY_CHARGES
from zae_limiter.tallies import STORE_AFTER_S


def rejected(limiter, times=1):
    for _ in range(times):
        with pytest.raises(RateLimitExceeded), limiter.acquire("user", "api", {"rpm": 1}):
            pass


@pytest.fixture
def exhausted(sqlite_url, clock):
    """Yield a limiter whose bucket is empty."""
    with SyncRepository.open(url=sqlite_url, clock=clock) as repository:
        repository.set_system_defaults([Limit.per_hour("rpm", 10)])
        limiter = SyncRateLimiter(repository)
        with limiter.acquire("user", "api", {"rpm": 10}):
            pass
        yield limiter


def test_a_rejected_acquire_writes_nothing(exhausted, path):
    with closing(sqlite3.connect(path)) as reader:
        before = reader.execute("PRAGMA data_version").fetchone()
        rejected(exhausted, EVERY_CHARGES // 2)
        assert reader.execute("PRAGMA data_version").fetchone() == before
        with exhausted.acquire("user", "other", {"rpm": 1}):
            pass
        assert reader.execute("PRAGMA data_version").fetchone() != before


def test_housekeeping_stores_what_no_write_has_taken_along(exhausted):
    rejected(exhausted, EVERY_CHARGES)
    (hour,), _ = exhausted.get_usage_snapshots("user", "api", "hourly")
    assert 0 < hour.rejected <= EVERY_CHARGES


def test_closing_stores_the_rest(sqlite_url, clock, exhausted):
    rejected(exhausted, 7)
    exhausted.repository.close()
    exhausted.repository.close()
    with SyncRepository.open(url=sqlite_url, clock=clock) as repository:
        (hour,), _ = repository.get_usage_snapshots("user", "api", "hourly")
        assert (hour.rejected, hour.total_events, hour.counters) == (7, 1, {"rpm": 10})
        (state,) = repository.get_buckets("user", "api")
        assert state.rejected == 7


def test_the_whole_namespace_is_read_along_an_index(path, exhausted):
    with closing(sqlite3.connect(path)) as reader:
        plan = reader.execute(
            "EXPLAIN QUERY PLAN SELECT entity_id, resource, counters FROM usage "
            "WHERE namespace_id = ? AND hour >= ? AND hour < ? "
            "AND (hour, entity_id, resource) > (?, ?, ?) "
            "ORDER BY hour, entity_id, resource LIMIT ?",
            ("ns", 1, 2, 1, "", "", 100),
        ).fetchall()
    (step,) = plan  # no step sorts
    assert "usage_by_namespace" in step[3]


@pytest.mark.slow
def test_a_client_that_does_nothing_more_stores_its_counts_within_30_seconds(sqlite_url, exhausted):
    rejected(exhausted, 3)
    time.sleep(STORE_AFTER_S + 3)
    with SyncRepository.open(url=sqlite_url, clock=exhausted.repository.charging.clock) as other:
        (hour,), _ = other.get_usage_snapshots("user", "api", "hourly")
    assert (hour.rejected, hour.rejected_amounts) == (3, {"rpm": 1})


def test_counts_that_no_write_takes_along_are_stored_in_the_background(sqlite_url, exhausted):
    repository = exhausted.repository
    repository._context.engine.buckets._noted.after_s = 0.05  # noqa: SLF001 - instead of 30 s
    rejected(exhausted, 3)
    ends_s = time.monotonic() + 20
    with SyncRepository.open(url=sqlite_url, clock=repository.charging.clock) as other:
        while True:
            (hour,), _ = other.get_usage_snapshots("user", "api", "hourly")
            if hour.rejected == 3:
                break
            assert time.monotonic() < ends_s
            time.sleep(0.02)
    assert hour.rejected_amounts == {"rpm": 1}


async def test_counts_survive_a_transaction_that_is_rolled_back(sqlite_url, path):
    """Operations that wait for the file share a transaction; here one of them is refused."""
    async with Repository.open(url=sqlite_url) as repository:
        await repository.set_system_defaults([Limit.per_hour("rpm", 1000)])
        await repository.create_entity("taken")
        limiter = RateLimiter(repository)

        async def charge(entity_id):
            async with limiter.acquire(entity_id, "api", {"rpm": 1}):
                pass

        with pytest.raises(RateLimitExceeded):
            async with limiter.acquire("user", "api", {"rpm": 1001}):
                pass
        with HeldFile(path) as lock:
            tasks = [asyncio.create_task(charge("other"))]  # waits for the file alone
            await asyncio.sleep(0.1)
            tasks += [asyncio.create_task(charge("user"))]
            tasks += [asyncio.create_task(repository.create_entity("taken")) for _ in range(3)]
            await asyncio.sleep(0.1)
            lock.free()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in ended].count(EntityExistsError) == 3
    async with Repository.open(url=sqlite_url) as repository:
        (hour,), _ = await repository.get_usage_snapshots("user", "api", "hourly")
        assert (hour.rejected, hour.total_events) == (1, 1)
