"""Usage is what was consumed in the end, however it came back."""

import pytest

from tests.regression.faults import Failure, a_failing_block
from zae_limiter import Limit

RPM = Limit.per_minute("rpm", 100)
OVERRIDE = Limit.per_minute("rpm", 500)


@pytest.fixture
def configured(repo):
    repo.set_system_defaults([RPM])
    return repo


def take(limiter, amount, *limits, entity_id="user"):
    with limiter.acquire(entity_id, "api", {"rpm": amount}, limits=limits or None):
        pass


def used(repo, entity_id="user"):
    return repo.get_usage_summary(entity_id=entity_id, resource="api").total.get("rpm", 0)


def events(repo):
    found, _ = repo.get_usage_snapshots(entity_id="user", window_type="hourly")
    return sum(each.total_events for each in found)


def forget_idle_buckets(limiter, clock):
    clock.advance(days=1)
    for number in range(250):
        take(limiter, 1, entity_id=f"passer-by-{number}")


def test_a_refunded_override_is_not_counted(configured, limiter):
    take(limiter, 7)
    with a_failing_block(), limiter.acquire("user", "api", {"rpm": 5}, limits=[OVERRIDE]):
        raise Failure
    take(limiter, 2, OVERRIDE)
    assert used(configured) == 9


def test_a_refunded_override_is_not_counted_although_it_was_dropped_meanwhile(
    configured, limiter, clock
):
    take(limiter, 7)
    with a_failing_block(), limiter.acquire("user", "api", {"rpm": 5}, limits=[OVERRIDE]):
        clock.advance(hours=1)
        take(limiter, 2)
        take(limiter, 1, Limit.per_minute("rpm", 77))
        raise Failure
    assert used(configured) == 10


def test_a_dropped_override_stays_counted_in_its_own_hour(configured, limiter, clock):
    take(limiter, 7)
    take(limiter, 5, OVERRIDE)
    clock.advance(hours=1)
    take(limiter, 2, Limit.per_minute("rpm", 77))
    found, _ = configured.get_usage_snapshots(entity_id="user", window_type="hourly")
    assert [each.counters for each in found] == [{"rpm": 12}, {"rpm": 2}]


@pytest.mark.parametrize("limits", [None, [OVERRIDE]], ids=["configured", "override"])
def test_a_credit_to_a_forgotten_bucket_is_taken_off_the_usage(configured, limiter, clock, limits):
    with limiter.acquire("user", "api", {"rpm": 50}, limits=limits) as lease:
        forget_idle_buckets(limiter, clock)
        assert configured.get_bucket("user", "api", "rpm") is None
        assert used(configured) == 50
        lease.adjust(rpm=-20)
    assert used(configured) == 30


def test_a_refund_to_a_forgotten_bucket_is_taken_off_the_usage(configured, limiter, clock):
    with a_failing_block(), limiter.acquire("user", "api", {"rpm": 50}):
        forget_idle_buckets(limiter, clock)
        raise Failure
    assert used(configured) == 0


def test_debts_and_credits_to_a_forgotten_bucket_are_counted_together(repo, limiter, clock):
    repo.set_system_defaults([RPM, Limit.per_minute("tpm", 1000)])
    with limiter.acquire("user", "api", {"rpm": 50, "tpm": 100}) as lease:
        forget_idle_buckets(limiter, clock)
        lease.adjust(rpm=-20, tpm=300)
    assert repo.get_usage_summary(entity_id="user").total == {"rpm": 30, "tpm": 400}
    assert limiter.available("user", "api") == {"rpm": 100, "tpm": 700}


def test_more_tokens_within_a_lease_are_not_another_event(configured, limiter, clock):
    for _ in range(2):
        with limiter.acquire("user", "api", {"rpm": 1}) as lease:
            lease.consume(rpm=3)
            lease.consume(rpm=4)
            lease.release(rpm=2)
        clock.advance(hours=1)
    assert (used(configured), events(configured)) == (12, 2)
