"""An async repository is not tied to the event loop that opened it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract._async import specs
from zae_limiter import Limit, RateLimiter, RateLimitExceeded
from zae_limiter.testing import FakeClock

LIMITS = [Limit.per_minute("rpm", 10)]


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def spec(request, tmp_path):
    if request.param == "dynamodb":
        return specs.dynamodb(request.getfixturevalue("dynamodb_table"))
    return specs.private_memory() if request.param == "memory" else specs.sqlite(tmp_path)


@pytest.fixture
def repository(spec):
    repository = asyncio.run(spec.open(clock=FakeClock()))
    yield repository
    asyncio.run(repository.close())


async def granted(repository):
    try:
        async with RateLimiter(repository).acquire("user", "api", {"rpm": 1}, LIMITS):
            return True
    except RateLimitExceeded:
        return False


def test_it_may_be_used_in_one_loop_after_the_other(repository):
    assert [asyncio.run(granted(repository)) for _ in range(12)] == [True] * 10 + [False] * 2


def test_loops_in_several_threads_win_exactly_as_often_as_there_are_tokens(repository):
    async def compete():
        return sum(await asyncio.gather(*(granted(repository) for _ in range(10))))

    with ThreadPoolExecutor(4) as pool:
        wins = [pool.submit(asyncio.run, compete()) for _ in range(4)]
        assert sum(each.result() for each in wins) == 10


def test_a_loop_that_ends_in_the_middle_does_not_stop_the_others(repository):
    async def leave_early():
        task = asyncio.ensure_future(granted(repository))
        await asyncio.sleep(0)
        return task

    asyncio.run(leave_early())
    assert asyncio.run(granted(repository)) is True
    state = asyncio.run(repository.get_bucket("user", "api", "rpm"))
    assert state.tokens in (8, 9)
