"""A change that is cancelled while the writer makes it: it is made, and in force at once."""

import asyncio

import pytest

from tests.integration.sqlite.faults import HeldFile
from tests.unit.test_waiting_line import Beat
from zae_limiter import Limit, RateLimiter, Repository

PATIENCE_S = 20.0


def rpm(number):
    return [Limit.per_minute("rpm", number)]


async def cancelled_but_done(path, operation):
    """Cancel an operation that the writer has begun: it is carried out."""
    with HeldFile(path) as held:
        task = asyncio.create_task(operation)
        await asyncio.sleep(0.05)  # the writer waits for the file on its behalf
        task.cancel()
        await asyncio.sleep(0)
        held.free()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
async def arepo(sqlite_url, clock):
    async with await Repository.open(url=sqlite_url, clock=clock) as repo:
        await repo.set_system_defaults(rpm(10))
        yield repo


async def test_limits_of_a_cancelled_set_limits_that_was_committed_are_in_force(arepo, path):
    limiter = RateLimiter(arepo)
    assert await limiter.available("user", "api") == {"rpm": 10}
    await cancelled_but_done(path, arepo.set_limits("user", rpm(50), "api"))
    assert await arepo.get_limits("user", "api") == rpm(50)
    assert await limiter.available("user", "api") == {"rpm": 50}


async def test_limits_of_a_cancelled_delete_limits_that_was_committed_are_gone(arepo, path):
    limiter = RateLimiter(arepo)
    await arepo.set_limits("user", rpm(50), "api")
    assert await limiter.available("user", "api") == {"rpm": 50}
    await cancelled_but_done(path, arepo.delete_limits("user", "api"))
    assert await limiter.available("user", "api") == {"rpm": 10}


async def test_defaults_that_were_committed_although_cancelled_are_in_force(arepo, path):
    limiter = RateLimiter(arepo)
    assert await limiter.available("user", "api") == {"rpm": 10}
    await cancelled_but_done(path, arepo.set_resource_defaults("api", rpm(70)))
    assert await limiter.available("user", "api") == {"rpm": 70}


async def test_an_entity_that_was_committed_although_cancelled_cascades(arepo, path):
    limiter = RateLimiter(arepo)
    assert await limiter.available("user", "api") == {"rpm": 10}
    await arepo.set_limits("team", rpm(3), "api")
    await cancelled_but_done(path, arepo.create_entity("user", parent_id="team", cascade=True))
    assert await limiter.available("user", "api") == {"rpm": 3}
    await cancelled_but_done(path, arepo.delete_entity("user"))
    assert await limiter.available("user", "api") == {"rpm": 10}


async def test_callers_whose_tokens_one_write_gives_back_end_one_by_one(sqlite_url, path):
    """Operations that wait for the file share a transaction, and all their callers wake at once."""
    callers, beat = 200, Beat()
    async with Repository.open(url=sqlite_url) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([Limit.custom("tokens", 1, 10, 1)])

        async def call():
            was_served = False
            try:
                async with limiter.acquire("user", "api", {"tokens": 1}, timeout=50):
                    was_served = True
                    await asyncio.sleep(3600)
            finally:
                beat.ended += not was_served

        tasks = [asyncio.create_task(call()) for _ in range(callers)]
        async with asyncio.timeout(PATIENCE_S):
            reserved = 0
            while reserved < callers // 2:
                buckets = await repo.get_buckets("user", "api")
                reserved = max([-bucket.tokens for bucket in buckets], default=0)
            with HeldFile(path) as lock:
                for task in tasks:
                    task.cancel()
                while repo.charging.waiting_lines:  # noqa: ASYNC110 - all leave, and give back
                    await asyncio.sleep(0)
                beating = asyncio.create_task(beat.run())
                await asyncio.sleep(0.2)
                lock.free()
                await asyncio.gather(*tasks, return_exceptions=True)
        beating.cancel()
        assert beat.ended > callers // 2
        assert beat.most <= 2
