"""What a client has done can be read from its repository."""

import asyncio

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

USER, API = "user-1", "api"


async def test_counts_say_what_was_asked_and_what_it_took(repo, limiter, proxy):
    await repo.set_system_defaults([Limit.per_minute("rpm", 50)])

    async def take():
        async with limiter.acquire(USER, API, {"rpm": 1}) as lease:
            await lease.adjust(rpm=-1)

    with proxy.measure() as seen:
        opened = repo.get_stats()
        await take()
        await repo.list_resources()  # waits for what goes on in the background
        before = repo.get_stats()
    assert (before.calls - opened.calls, before.retries) == (seen.calls, 0)
    assert (before.charges, before.granted, before.settlements, before.writes) == (1, 1, 1, 2)
    await asyncio.gather(*(take() for _ in range(40)))
    after = repo.get_stats()
    assert (after.granted, after.settlements) == (41, 41)
    assert after.largest_group > 1
    assert after.writes < 30
    assert after.writes_per_charge < 1
    assert after.plain_moves + after.clamp_moves > 0
    with pytest.raises(RateLimitExceeded):
        async with limiter.acquire(USER, API, {"rpm": 51}):
            pass
    last = repo.get_stats()
    assert (last.rejected, last.cached_rejections, last.writes) == (1, 1, after.writes)


async def test_a_write_that_found_the_bucket_changed_is_counted(repo, limiter, open_repo):
    await repo.set_system_defaults([Limit.per_minute("rpm", 50)])
    async with limiter.acquire(USER, API, {"rpm": 1}):
        pass
    other = await open_repo()
    async with RateLimiter(other).acquire(USER, API, {"rpm": 40}):
        pass
    with pytest.raises(RateLimitExceeded):
        async with limiter.acquire(USER, API, {"rpm": 20}):
            pass
    found = repo.get_stats()
    assert (found.refused_writes, found.rejected, found.cached_rejections) == (1, 1, 0)


async def test_a_call_that_is_made_again_is_counted(repo, limiter, proxy):
    await repo.set_system_defaults([Limit.per_minute("rpm", 50)])
    before = repo.get_stats()
    with proxy.fault("throttle", operation="UpdateItem", times=2):
        async with limiter.acquire(USER, API, {"rpm": 1}):
            pass
    after = repo.get_stats()
    assert (after.retries - before.retries, after.writes - before.writes) == (2, 1)
