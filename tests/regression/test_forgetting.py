"""Buckets on default limits are forgotten as fast as new ones come."""

import tracemalloc

import pytest

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

RPS = Limit.per_second("rps", 10)  # remembered for seven seconds


def test_ids_that_come_only_once_do_not_accumulate(repo, limiter, clock):
    repo.set_system_defaults([RPS])
    most = 0
    for number in range(20_000):
        with limiter.acquire(f"visitor-{number}", "api", {"rps": 1}):
            pass
        if number % 10 == 9:
            clock.advance(ms=100)
        if number % 2000 == 1999:
            most = max(most, len(repo.get_resource_buckets("api")))
    assert most < 1500  # about 700 are live at any time


async def test_ids_that_come_only_once_do_not_accumulate_for_tasks(url, clock):
    async with await Repository.open(url=url, clock=clock) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([RPS])
        for number in range(3000):
            async with limiter.acquire(f"visitor-{number}", "api", {"rps": 1}):
                pass
            clock.advance(ms=10)
        assert len(await repo.get_resource_buckets("api")) < 1200


def test_a_backlog_is_worked_off_by_later_calls(repo, limiter, clock):
    repo.set_system_defaults([RPS])
    for number in range(3000):
        with limiter.acquire(f"visitor-{number}", "api", {"rps": 1}):
            pass
    clock.advance(minutes=1)
    for _ in range(3000):
        with limiter.acquire("regular", "api", {"rps": 0}):
            pass
    assert len(repo.get_resource_buckets("api")) < 10


def test_ids_that_come_only_once_do_not_accumulate_where_clients_live_shortly(url, clock, tmp_path):
    """Programs that start, make a few calls and end."""
    url = url.replace("memory://", f"memory://{tmp_path.name}")
    for run in range(20):
        with SyncRepository.open(url=url, clock=clock) as repo:
            repo.set_system_defaults([RPS])
            for number in range(50):
                with SyncRateLimiter(repo).acquire(f"visitor-{run}-{number}", "api", {"rps": 1}):
                    pass
            buckets = len(repo.get_resource_buckets("api"))
        clock.advance(seconds=10)
    assert buckets < 500


def test_switching_between_limits_that_are_kept_and_forgotten_costs_no_memory(clock):
    """An entity's own limits are kept, those that a call brings are forgotten in time."""
    configured, brought = (Limit.per_day("rpd", number) for number in (10**9, 10**8))
    with SyncRepository.open(url="memory://", clock=clock) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_limits("user", [configured], "api")

        def switch(times):
            for _ in range(times):
                for limits in (None, [brought]):
                    with limiter.acquire("user", "api", {"rpd": 1}, limits=limits):
                        pass
                clock.advance(ms=1)

        switch(200)
        tracemalloc.start()
        try:
            switch(2000)
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert grown < 50_000


def test_rejected_calls_do_not_leave_buckets(repo, limiter):
    repo.set_system_defaults([RPS])
    for number in range(10):
        with pytest.raises(Exception, match="can never fit"):
            limiter.acquire(f"visitor-{number}", "api", {"rps": 11}).__enter__()
    assert repo.get_resource_buckets("api") == []


def test_a_bucket_in_debt_is_remembered_until_it_is_repaid(repo, limiter, clock):
    repo.set_system_defaults([RPS])
    with limiter.acquire("debtor", "api", {"rps": 1}) as lease:
        lease.adjust(rps=1000)
    clock.advance(seconds=30)
    for number in range(300):
        with SyncRateLimiter(repo).acquire(f"visitor-{number}", "api", {"rps": 1}):
            pass
    assert limiter.available("debtor", "api") == {"rps": -691}
