"""A provider, limiters of both trees, and a ledger to compare."""

import gc
from pathlib import Path

import certifi
import pytest

from tests.support.providers import Provider
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

RPM, TPM = 1_000, 100_000
# They refill one token a day: what is missing was charged.
LIMITS = [
    Limit.custom("rpm", capacity=RPM, refill_amount=1, refill_period_seconds=86_400),
    Limit.custom("tpm", capacity=TPM, refill_amount=1, refill_period_seconds=86_400),
]


@pytest.fixture(scope="session")
def one_certificate(tmp_path_factory):
    """A file that SDKs read in no time: each client would read all authorities of the world."""
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("tls") / "one.pem"
    file.write_text(Path(certifi.where()).read_text(encoding="utf-8").partition(end)[0] + end)
    return file


@pytest.fixture(autouse=True)
def _cheap_clients(one_certificate, monkeypatch):
    """No test here uses TLS, and some collect garbage: not that of the SDKs' thousand models."""
    monkeypatch.setenv("SSL_CERT_FILE", str(one_certificate))
    gc.freeze()


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
        return missing(await limiter.repository.get_buckets("key", "model"))

    return charged


@pytest.fixture
def sync_ledger(sync_limiter):
    def charged():
        return missing(sync_limiter.repository.get_buckets("key", "model"))

    return charged


def missing(states):
    """Return requests and tokens that were taken; also while the bucket is paused."""
    levels = {state.limit_name: state.tokens for state in states}
    return RPM - levels.get("rpm", RPM), TPM - levels.get("tpm", TPM)
