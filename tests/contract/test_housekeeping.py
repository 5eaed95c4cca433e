"""Embedded stores forget what no longer matters, and nothing else."""

import pytest

from tests.contract._sync import specs
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.embedded.housekeeping import EVERY_CHARGES
from zae_limiter.testing import FakeClock

HOURLY = Limit.per_hour("rpm", 10)
API = "api"


@pytest.fixture(params=["memory", "sqlite"])
def spec(request, tmp_path):
    return specs.private_memory() if request.param == "memory" else specs.sqlite(tmp_path)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def repository(spec, clock):
    with spec.open(clock=clock) as repository:
        repository.set_system_defaults([HOURLY])
        yield repository


@pytest.fixture
def limiter(repository):
    return SyncRateLimiter(repository)


def take(limiter, entity_id="user", amount=1):
    with limiter.acquire(entity_id, API, {"rpm": amount}):
        pass


def owe(limiter, amount, entity_id="user"):
    with limiter.acquire(entity_id, API, {}) as lease:
        lease.adjust(rpm=amount)


def make_traffic(limiter):
    """Enough of it for housekeeping to have come round."""
    for _ in range(3 * EVERY_CHARGES):
        take(limiter, "traffic", 0)


def test_a_bucket_that_has_long_been_full_is_forgotten_and_its_usage_is_not(
    clock, repository, limiter
):
    take(limiter, amount=7)
    clock.advance(days=30)
    make_traffic(limiter)
    assert repository.get_buckets("user") == []
    assert repository.get_usage_summary("user").total == {"rpm": 7}
    take(limiter, amount=10)
    assert repository.get_usage_summary("user").total == {"rpm": 17}


def test_a_bucket_in_use_is_not_forgotten(clock, repository, limiter):
    for _ in range(30):
        take(limiter)
        clock.advance(hours=1)
        make_traffic(limiter)
    assert repository.get_bucket("user", API, "rpm").total_consumed_milli == 30_000


def test_a_debt_is_not_forgotten_however_long_it_takes_to_repay(clock, repository, limiter):
    owe(limiter, 10 + 24 * 10 * 60)  # sixty days
    clock.advance(days=30)
    make_traffic(limiter)
    assert repository.get_bucket("user", API, "rpm").tokens == -30 * 24 * 10
    clock.advance(days=60)
    make_traffic(limiter)
    assert limiter.available("user", API) == {"rpm": 10}


def test_a_debt_made_at_the_end_of_a_long_lease_is_not_forgotten(clock, repository, limiter):
    with limiter.acquire("user", API, {"rpm": 1}) as lease:
        clock.advance(days=6)
        lease.adjust(rpm=10 + 24 * 10 * 10)
    clock.advance(days=5)
    make_traffic(limiter)
    assert repository.get_bucket("user", API, "rpm").tokens == -5 * 24 * 10


def test_a_bucket_with_limits_of_its_own_entity_is_kept(clock, repository, limiter):
    repository.set_limits("user", [HOURLY])
    take(limiter)
    clock.advance(days=365)
    make_traffic(limiter)
    assert repository.get_bucket("user", API, "rpm") is not None


def test_history_is_forgotten_after_its_retention_and_not_before(clock, repository, limiter):
    repository.create_entity("user")
    take(limiter)
    clock.advance(days=89)
    make_traffic(limiter)
    assert repository.get_usage_summary("user").total == {"rpm": 1}
    assert len(repository.get_audit_events("user")) == 1
    clock.advance(days=2)
    make_traffic(limiter)
    assert repository.get_usage_summary("user").total == {}
    assert repository.get_audit_events("user") == []


def test_limits_and_entities_are_never_forgotten(clock, repository, limiter):
    repository.create_entity("user")
    repository.set_limits("user", [HOURLY])
    clock.advance(days=3650)
    make_traffic(limiter)
    assert repository.get_entity("user") is not None
    assert repository.get_limits("user") == [HOURLY]
