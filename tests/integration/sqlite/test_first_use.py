"""A limiter without a repository opens one store, however many calls come first."""

import asyncio
import resource
import threading
from pathlib import Path

import pytest

from zae_limiter import InfrastructureError, Limit, RateLimiter, SyncRateLimiter

LIMITS = [Limit.per_day("rpm", 1000)]  # hardly refills, however slow the machine is
CALLS = 60
SPARE_FILES = 30  # a store has about ten open


@pytest.fixture(autouse=True)
def url(tmp_path, monkeypatch):
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{tmp_path}/limits.db")


@pytest.fixture
def few_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + SPARE_FILES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
async def test_tasks():
    async with RateLimiter() as limiter:

        async def call():
            async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, limits=LIMITS):
                pass

        await asyncio.gather(*(call() for _ in range(CALLS)))
        assert await limiter.available("user-1", "gpt-4", limits=LIMITS) == {"rpm": 1000 - CALLS}


@pytest.mark.usefixtures("few_files")
def test_threads():
    with SyncRateLimiter() as limiter:
        start, failures = threading.Barrier(CALLS), []

        def call():
            try:
                start.wait()
                with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, limits=LIMITS):
                    pass
            except Exception as error:  # noqa: BLE001 - shown below
                failures.append(error)

        threads = [threading.Thread(target=call) for _ in range(CALLS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert limiter.available("user-1", "gpt-4", limits=LIMITS) == {"rpm": 1000 - CALLS}


async def test_if_it_cannot_be_opened_every_caller_hears_it_and_the_next_one_tries_again(
    tmp_path, monkeypatch
):
    place = tmp_path / "missing"
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{place}/limits.db")
    async with RateLimiter() as limiter:
        calls = [limiter.get_entity("user-1") for _ in range(3)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, InfrastructureError) for error in errors)
        assert len(set(map(id, errors))) == 3
        place.mkdir()
        assert await limiter.get_entity("user-1") is None


async def test_if_the_caller_that_opens_it_is_cancelled_another_one_opens_it():
    async with RateLimiter() as limiter:
        first = asyncio.ensure_future(limiter.get_entity("user-1"))
        second = asyncio.ensure_future(limiter.get_entity("user-1"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is None
