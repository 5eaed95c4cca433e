"""A provider, limiters of both trees, and a ledger to compare."""

import pytest

from tests.support.providers import Provider
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

RPM, TPM = 1_000, 100_000
# They refill one token a day: what is missing was charged.
LIMITS = [
    Limit.custom("rpm", capacity=RPM, refill_amount=1, refill_period_seconds=86_400),
    Limit.custom("tpm", capacity=TPM, refill_amount=1, refill_period_seconds=86_400),
]


@pytest.fixture
def provider():
    with Provider().running() as running:
        yield running


@pytest.fixture
async def limiter():
    async with Repository.open(url="memory://") as repository:
        await repository.set_system_defaults(LIMITS)
        yield RateLimiter(repository=repository)


@pytest.fixture
def sync_limiter():
    with SyncRepository.open(url="memory://") as repository:
        repository.set_system_defaults(LIMITS)
        yield SyncRateLimiter(repository=repository)


@pytest.fixture
def ledger(limiter):
    """What was charged to ``key`` on ``model``: requests and tokens."""

    async def charged():
        levels = await limiter.available("key", "model")
        return RPM - levels["rpm"], TPM - levels["tpm"]

    return charged


@pytest.fixture
def sync_ledger(sync_limiter):
    def charged():
        levels = sync_limiter.available("key", "model")
        return RPM - levels["rpm"], TPM - levels["tpm"]

    return charged
