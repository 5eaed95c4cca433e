"""A change that is cancelled while the writer makes it: it is made, and in force at once."""

import asyncio

import pytest

from tests.integration.sqlite.faults import HeldFile
from zae_limiter import Limit, RateLimiter, Repository


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
