"""Limits that a call brings, beside those that are configured."""

import pytest

from zae_limiter import Limit, RateLimitExceeded

CONFIGURED = Limit.per_minute("rpm", 10)
OVERRIDE = Limit.per_minute("rpm", 100)


@pytest.fixture
def configured(repo):
    repo.set_system_defaults([CONFIGURED])
    return repo


def take(limiter, amount, *limits, entity_id="user"):
    with limiter.acquire(entity_id, "api", {"rpm": amount}, limits=limits or None):
        pass


def forget_idle_buckets(limiter, clock):
    """Let every bucket fill up and expire, and others come by, which is when it is forgotten."""
    clock.advance(days=1)
    for number in range(250):
        take(limiter, 1, entity_id=f"passer-by-{number}")


# --- two balances


def test_an_override_that_comes_first_has_a_balance_of_its_own(configured, limiter):
    take(limiter, 100, OVERRIDE)
    assert limiter.available("user", "api") == {"rpm": 10}
    take(limiter, 1)
    assert limiter.available("user", "api") == {"rpm": 9}
    assert limiter.available("user", "api", limits=[OVERRIDE]) == {"rpm": 0}
    with pytest.raises(RateLimitExceeded):
        take(limiter, 1, OVERRIDE)


def test_an_override_that_comes_second_has_a_balance_of_its_own(configured, limiter):
    take(limiter, 10)
    take(limiter, 100, OVERRIDE)
    for limits in ((), (OVERRIDE,)):
        with pytest.raises(RateLimitExceeded):
            take(limiter, 1, *limits)


def test_an_override_with_the_configured_numbers_is_the_configured_limit(configured, limiter):
    take(limiter, 7, CONFIGURED)
    assert limiter.available("user", "api") == {"rpm": 3}


# --- a bucket that is forgotten under a lease


def test_a_debt_of_an_override_survives_although_its_bucket_was_forgotten(
    configured, limiter, clock
):
    with limiter.acquire("user", "api", {"rpm": 5}, limits=[OVERRIDE]) as lease:
        forget_idle_buckets(limiter, clock)
        assert configured.get_bucket("user", "api", "rpm") is None
        lease.adjust(rpm=150)
    assert limiter.available("user", "api", limits=[OVERRIDE]) == {"rpm": -50}
    assert limiter.available("user", "api") == {"rpm": 10}
    with pytest.raises(RateLimitExceeded):
        take(limiter, 0, OVERRIDE)


def test_a_debt_of_an_override_survives_although_its_balance_was_dropped(
    configured, limiter, clock
):
    take(limiter, 1)
    with limiter.acquire("user", "api", {"rpm": 5}, limits=[OVERRIDE]) as lease:
        clock.advance(hours=1)
        take(limiter, 1, Limit.per_minute("rpm", 50))
        lease.adjust(rpm=150)
    assert limiter.available("user", "api", limits=[OVERRIDE]) == {"rpm": -50}


# --- what stays of them


@pytest.mark.parametrize("used_without", [True, False], ids=["beside-configured", "overrides-only"])
def test_many_different_overrides_do_not_pile_up_in_a_bucket(
    configured, limiter, clock, used_without
):
    if used_without:
        take(limiter, 1)
    for number in range(300):
        take(limiter, 1, Limit.per_minute("rpm", 100 + number))
        clock.advance(minutes=2)
    assert len(configured.get_buckets("user", "api")) < 5


def test_an_override_that_is_not_full_yet_is_not_dropped(configured, limiter, clock):
    take(limiter, 1)
    take(limiter, 100, OVERRIDE)
    clock.advance(seconds=30)
    take(limiter, 1, Limit.per_minute("rpm", 77))
    assert limiter.available("user", "api", limits=[OVERRIDE]) == {"rpm": 50}


# --- how they are reported


def test_the_capacity_of_a_resource_counts_an_entity_once(configured, limiter):
    take(limiter, 4)
    take(limiter, 30, OVERRIDE)
    take(limiter, 1, entity_id="other")
    capacity = limiter.get_resource_capacity("api", "rpm")
    assert [(each.entity_id, each.capacity, each.available) for each in capacity.entities] == [
        ("other", 10, 9),
        ("user", 10, 6),
    ]
    assert (capacity.total_capacity, capacity.total_available) == (20, 15)


def test_the_capacity_of_a_resource_knows_no_limits_that_only_calls_brought(configured, limiter):
    take(limiter, 30, OVERRIDE)
    take(limiter, 4, entity_id="other")
    capacity = limiter.get_resource_capacity("api", "rpm")
    assert (capacity.total_capacity, capacity.total_available) in [(10, 6), (20, 16)]


def test_the_capacity_of_a_resource_counts_an_entity_once_whichever_came_first(configured, limiter):
    take(limiter, 30, OVERRIDE)
    take(limiter, 4)
    capacity = limiter.get_resource_capacity("api", "rpm")
    assert [(each.capacity, each.available) for each in capacity.entities] == [(10, 6)]
