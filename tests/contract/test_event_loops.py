"""An async repository is not tied to the event loop that opened it."""

import asyncio
import threading
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
def limiter(spec):
    """A limiter that no event loop has used yet, as a module has it; its namespace exists."""

    async def register():
        await (await spec.open(clock=FakeClock())).close()

    asyncio.run(register())
    limiter = RateLimiter(url=spec.url, clock=FakeClock(), request_timeout=10)
    yield limiter
    asyncio.run(limiter.close())


@pytest.fixture
def repository(spec):
    repository = asyncio.run(spec.open(clock=FakeClock()))
    yield repository
    asyncio.run(repository.close())


async def granted(repository):
    return await granted_by(RateLimiter(repository))


async def granted_by(limiter):
    try:
        async with limiter.acquire("user", "api", {"rpm": 1}, LIMITS):
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


def test_a_limiter_with_a_url_is_opened_once_for_loops_in_several_threads(limiter):
    together = threading.Barrier(4)

    async def compete():
        together.wait()
        wins = sum(await asyncio.gather(*(granted_by(limiter) for _ in range(10))))
        return wins, limiter.repository

    with ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(asyncio.run, compete()) for _ in range(4)]
        results = [each.result() for each in ends]
    assert sum(wins for wins, _ in results) == 10
    assert len({id(repository) for _, repository in results}) == 1


def test_a_limiter_with_a_url_is_opened_by_another_loop_if_the_first_one_ends(limiter):
    async def leave_early():
        task = asyncio.ensure_future(granted_by(limiter))
        await asyncio.sleep(0)
        return task

    asyncio.run(leave_early())
    assert asyncio.run(granted_by(limiter)) is True
