"""Sync and async clients of one store share everything."""

import asyncio

import pytest

from tests.contract._async import specs
from tests.contract._sync import specs as sync_specs
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter
from zae_limiter.testing import FakeClock

LIMIT = Limit.per_minute("rpm", 10)


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def pair(request, tmp_path, unique_name):
    """A spec for each tree, of the same store."""
    if request.param == "memory":
        return specs.named_memory(unique_name), sync_specs.named_memory(unique_name)
    if request.param == "sqlite":
        return specs.sqlite(tmp_path), sync_specs.sqlite(tmp_path)
    table = request.getfixturevalue("dynamodb_table")
    return specs.dynamodb(table), sync_specs.dynamodb(table)


@pytest.fixture
async def limiters(pair):
    clock, (spec, sync_spec) = FakeClock(), pair
    async with await spec.open(clock=clock) as repository:
        with sync_spec.open(clock=clock) as sync_repository:
            yield RateLimiter(repository), SyncRateLimiter(sync_repository)


async def test_what_one_tree_takes_is_gone_for_the_other(limiters):
    limiter, sync_limiter = limiters
    await limiter.set_system_defaults([LIMIT])
    async with limiter.acquire("user", "api", {"rpm": 4}):
        pass
    with sync_limiter.acquire("user", "api", {"rpm": 6}):
        pass
    with pytest.raises(RateLimitExceeded):
        async with limiter.acquire("user", "api", {"rpm": 1}):
            pass


async def test_what_one_tree_stores_the_other_reads(limiters):
    limiter, sync_limiter = limiters
    await limiter.create_entity("key", parent_id="team", cascade=True, metadata={"a": "ü"})
    await limiter.set_limits("key", [LIMIT], principal="me")
    assert sync_limiter.get_entity("key") == await limiter.get_entity("key")
    assert sync_limiter.get_limits("key") == [LIMIT]
    assert sync_limiter.get_audit_events("key") == await limiter.get_audit_events("key")


async def test_tasks_and_threads_together_win_exactly_as_often_as_there_are_tokens(limiters):
    limiter, sync_limiter = limiters
    await limiter.set_system_defaults([LIMIT])

    async def in_task():
        try:
            async with limiter.acquire("user", "api", {"rpm": 1}):
                return True
        except RateLimitExceeded:
            return False

    def in_thread():
        try:
            with sync_limiter.acquire("user", "api", {"rpm": 1}):
                return True
        except RateLimitExceeded:
            return False

    calls = [call for _ in range(15) for call in (in_task(), asyncio.to_thread(in_thread))]
    assert sum(await asyncio.gather(*calls)) == 10
