import time

import pytest

from tests.support.dynamodb.tables import empty_table, store_url
from tests.support.dynamodb.world import PATIENT_S
from zae_limiter import RateLimiter, Repository, SyncRepository
from zae_limiter.testing import FakeClock


@pytest.fixture
def stack(endpoint):
    with empty_table(endpoint) as name:
        yield name


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def open_repo(stack, proxy, clock):
    """Opens repositories on the test's table, through the proxy."""
    opened = []

    async def make(**settings):
        settings = {"clock": clock, "request_timeout": PATIENT_S, **settings}
        repo = await Repository.open(url=store_url(stack, proxy.url), **settings)
        opened.append(repo)
        return repo

    yield make
    for repo in opened:
        await repo.close()


@pytest.fixture
async def repo(open_repo):
    return await open_repo()


@pytest.fixture
async def queueing_repo(open_repo, monkeypatch):
    """A repository whose callers wait for a write under way, however slow the machine is.

    For its write queues time stands still, so no caller comes so late that it writes in parallel.
    """
    now_s = time.monotonic()
    with monkeypatch.context() as frozen:
        frozen.setattr("time.monotonic", lambda: now_s)
        return await open_repo()


@pytest.fixture
async def limiter(repo):
    return RateLimiter(repo)


@pytest.fixture
def sync_repo(stack, proxy, clock):
    with SyncRepository.open(url=store_url(stack, proxy.url), clock=clock) as repo:
        yield repo
