"""What a lease gives back, to whom, and when."""

from contextlib import suppress

import pytest

from zae_limiter import (
    LeaseExpiredError,
    Limit,
    RateLimitExceeded,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.testing import FakeClock

RPM, TPM = Limit("rpm", 10, 1, 3600), Limit("tpm", 1000, 1, 3600)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def repository(request, clock, tmp_path):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/limits.db"
    with SyncRepository.open(url=url, clock=clock) as opened:
        opened.set_system_defaults([RPM, TPM])
        yield opened


@pytest.fixture
def limiter(repository, clock):
    return SyncRateLimiter(repository, clock=clock)


def levels(limiter, entity="user-1", limits=None):
    return limiter.available(entity, "gpt-4", limits)


def acquire(limiter, entity="user-1", limits=None, **consume):
    return limiter.acquire(entity, "gpt-4", consume, limits)


class Oops(Exception):
    pass


def test_charges_are_written_when_the_block_is_entered(limiter):
    with acquire(limiter, rpm=1, tpm=500) as lease:
        assert lease.consumed == {"rpm": 1, "tpm": 500}
        assert levels(limiter) == {"rpm": 9, "tpm": 500}
    assert levels(limiter) == {"rpm": 9, "tpm": 500}


def test_adjustments_are_written_when_the_block_is_left(limiter):
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.adjust(tpm=1500)
        lease.adjust(tpm=-100, rpm=-1)
        assert lease.consumed == {"rpm": 0, "tpm": 1900}
        assert levels(limiter) == {"rpm": 9, "tpm": 500}
    assert levels(limiter) == {"rpm": 10, "tpm": -900}


def test_a_limit_that_was_not_consumed_can_be_adjusted(limiter):
    with acquire(limiter, rpm=1) as lease:
        lease.adjust(tpm=70)
    assert levels(limiter) == {"rpm": 9, "tpm": 930}


def test_an_exception_gives_everything_back_and_drops_adjustments(limiter):
    with suppress(Oops), acquire(limiter, rpm=1, tpm=500) as lease:
        lease.consume(tpm=100)
        lease.release(tpm=30)
        lease.adjust(tpm=400)
        raise Oops
    assert levels(limiter) == {"rpm": 10, "tpm": 1000}


def test_an_exception_is_not_swallowed(limiter):
    with pytest.raises(Oops), acquire(limiter, rpm=1):
        raise Oops


def test_more_can_be_consumed_and_is_checked(limiter):
    with acquire(limiter, rpm=1) as lease:
        lease.consume(rpm=8, tpm=3)
        assert lease.consumed == {"rpm": 9, "tpm": 3}
        with pytest.raises(RateLimitExceeded):
            lease.consume(rpm=2)
        assert lease.consumed == {"rpm": 9, "tpm": 3}
    assert levels(limiter) == {"rpm": 1, "tpm": 997}


def test_what_is_released_is_there_at_once(limiter):
    with acquire(limiter, rpm=5) as lease:
        lease.release(rpm=2)
        assert levels(limiter)["rpm"] == 7
        with pytest.raises(ValidationError, match="holds"):
            lease.release(rpm=4)
    assert levels(limiter)["rpm"] == 7


@pytest.mark.parametrize("method", ["adjust", "consume", "release"])
def test_a_limit_that_nobody_has_is_refused(limiter, method):
    with acquire(limiter, rpm=1) as lease, pytest.raises(ValidationError, match="rpm, tpm"):
        getattr(lease, method)(rph=1)


@pytest.mark.parametrize("method", ["adjust", "consume", "release"])
def test_after_its_block_a_lease_is_of_no_use(limiter, method):
    with acquire(limiter, rpm=1) as lease:
        pass
    with pytest.raises(LeaseExpiredError, match=method):
        getattr(lease, method)(rpm=1)


# --- while limits change


def test_a_refused_consume_under_other_limits_leaves_the_lease_as_it_was(repository, limiter):
    with suppress(Oops), acquire(limiter, rpm=5, tpm=1) as lease:
        repository.set_system_defaults([RPM])
        with pytest.raises(RateLimitExceeded):
            lease.consume(rpm=50)
        raise Oops
    repository.set_system_defaults([RPM, TPM])
    assert levels(limiter) == {"rpm": 10, "tpm": 1000}


def test_a_refused_consume_under_reordered_limits_gives_back_to_the_right_ones(repository, limiter):
    with suppress(RateLimitExceeded), acquire(limiter, rpm=5, tpm=1) as lease:
        repository.set_system_defaults([TPM, RPM])
        lease.consume(rpm=50)
    assert levels(limiter) == {"rpm": 10, "tpm": 1000}


def test_tokens_go_back_where_they_were_taken_though_limits_changed(repository, limiter):
    with suppress(Oops), acquire(limiter, rpm=5, tpm=7) as lease:
        repository.set_system_defaults([RPM])
        lease.consume(rpm=1)
        raise Oops
    repository.set_system_defaults([RPM, TPM])
    assert levels(limiter) == {"rpm": 10, "tpm": 1000}


def test_a_parent_gets_its_tokens_back_though_the_child_has_left_it(repository, limiter):
    repository.create_entity("child", parent_id="parent", cascade=True)
    with suppress(Oops), acquire(limiter, "child", rpm=5) as lease:
        repository.delete_entity("child")
        lease.consume(rpm=1)
        raise Oops
    assert levels(limiter, "parent")["rpm"] == 10
    assert levels(limiter, "child")["rpm"] == 10


def test_the_debt_of_a_call_with_its_own_limits_is_kept_though_the_bucket_is_gone(
    repository, limiter
):
    own = [Limit("rpm", 20, 1, 3600)]
    with acquire(limiter, rpm=1):
        pass
    with acquire(limiter, limits=own, rpm=1) as lease:
        repository.delete_entity("user-1")
        lease.adjust(rpm=5)
    assert levels(limiter, limits=own) == {"rpm": 15}


def test_a_late_debt_does_not_bring_old_limits_back(repository, limiter):
    with acquire(limiter, rpm=1) as lease:
        repository.delete_entity("user-1")
        repository.set_system_defaults([Limit("rpm", 5000, 1, 3600)])
        with acquire(limiter, rpm=1):
            pass
        lease.adjust(tpm=3)
    assert levels(limiter) == {"rpm": 4999}


# --- cascades


def test_a_cascade_charges_and_gives_back_to_both(repository, limiter):
    repository.create_entity("child", parent_id="parent", cascade=True)
    with acquire(limiter, "child", rpm=3) as lease:
        lease.adjust(tpm=10)
        assert levels(limiter, "parent")["rpm"] == 7
    assert levels(limiter, "parent") == levels(limiter, "child") == {"rpm": 7, "tpm": 990}
    with suppress(Oops), acquire(limiter, "child", rpm=3):
        raise Oops
    assert levels(limiter, "parent")["rpm"] == 7


def test_a_parent_without_enough_refuses_the_child(repository, limiter):
    repository.create_entity("child", parent_id="parent", cascade=True)
    with acquire(limiter, "parent", rpm=8):
        pass
    with pytest.raises(RateLimitExceeded) as caught:
        acquire(limiter, "child", rpm=3).__enter__()
    (violation,) = caught.value.violations
    assert (violation.entity_id, violation.limit_name) == ("parent", "rpm")
    assert len(caught.value.statuses) == 4
    repository.delete_entity("child")
    assert levels(limiter, "child")["rpm"] == 10


# --- limits that change while nobody is served


def test_after_limits_were_raised_a_larger_request_fits_after_the_stated_time(
    repository, limiter, clock
):
    with acquire(limiter, rpm=10):
        pass
    repository.set_system_defaults([Limit("rpm", 100, 10, 10)])
    with pytest.raises(RateLimitExceeded) as caught:
        acquire(limiter, rpm=50).__enter__()
    assert caught.value.retry_after_seconds == 50.0
    clock.advance(seconds=50)
    with acquire(limiter, rpm=50):
        pass


# --- numbers


@pytest.mark.parametrize(
    "limit",
    [
        Limit("rpm", 10**15, 1, 3600),
        Limit("rpm", 10**15, 10**15, 1),
        Limit("rpm", 1, 1, 100 * 366 * 86_400),
        Limit("rpm", 10**15, 1, 100 * 366 * 86_400),
    ],
    ids=str,
)
def test_every_limit_that_is_valid_can_be_used(repository, limiter, limit):
    repository.set_system_defaults([limit])
    with acquire(limiter, rpm=1) as lease:
        lease.adjust(rpm=10**15)
    assert levels(limiter)["rpm"] == limit.capacity - 1 - 10**15
    with acquire(limiter, "user-2", limits=[limit], rpm=limit.capacity):
        pass
