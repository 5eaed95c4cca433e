"""Limiters whose limits do not refill, and what was charged."""

import pytest

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

RPM, TPM = 3, 10_000
LIMITS = [
    Limit.custom("rpm", capacity=RPM, refill_amount=1, refill_period_seconds=86_400),
    Limit.custom("tpm", capacity=TPM, refill_amount=1, refill_period_seconds=86_400),
]


@pytest.fixture
def url():
    """The store of the async limiter; tests of what a store makes harder name others."""
    return "memory://"


@pytest.fixture
async def limiter(url):
    async with Repository.open(url=url) as repository:
        await repository.set_system_defaults(LIMITS)
        yield RateLimiter(repository=repository)


@pytest.fixture
def sync_limiter():
    with SyncRepository.open(url="memory://") as repository:
        repository.set_system_defaults(LIMITS)
        yield SyncRateLimiter(repository=repository)


@pytest.fixture
def charged(limiter):
    """Requests and tokens that were charged to ``key`` on a resource."""

    async def look(resource="api"):
        levels = await limiter.available("key", resource)
        return RPM - levels["rpm"], TPM - levels["tpm"]

    return look


@pytest.fixture
def charged_sync(sync_limiter):
    def look(resource="api"):
        levels = sync_limiter.available("key", resource)
        return RPM - levels["rpm"], TPM - levels["tpm"]

    return look
