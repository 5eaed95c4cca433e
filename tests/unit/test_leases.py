"""What a lease writes, and when. The contract suite has the rest, for every engine."""

import sys
import time
from contextlib import suppress

import pytest
from zae_limiter_contract.together import gather

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


@pytest.fixture
def repository(clock):
    with SyncRepository.open(url="memory://", clock=clock) as opened:
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
def test_an_unknown_limit_is_refused_and_the_known_ones_are_named(limiter, method):
    with acquire(limiter, rpm=1) as lease, pytest.raises(ValidationError, match="rpm, tpm"):
        getattr(lease, method)(rph=1)


@pytest.mark.parametrize("method", ["adjust", "consume", "release"])
def test_after_its_block_a_lease_is_of_no_use(limiter, method):
    with acquire(limiter, rpm=1) as lease:
        pass
    with pytest.raises(LeaseExpiredError, match=method):
        getattr(lease, method)(rpm=1)


def test_a_lease_that_is_used_often_stays_quick(repository, limiter):
    repository.set_system_defaults([Limit.per_minute("rpm", 100_000)])
    with acquire(limiter, rpm=10) as lease:
        began = time.process_time()
        for _ in range(150):
            lease.consume(rpm=3)
            lease.release(rpm=1)
        assert time.process_time() - began < 1
    assert levels(limiter) == {"rpm": 100_000 - 10 - 300}


@pytest.fixture
def hasty_threads():
    """Threads that are switched at nearly every step."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_no_adjustment_of_many_threads_is_lost(repository, limiter, hasty_threads):
    repository.set_system_defaults([Limit.per_minute("rpm", 100_000)])

    def adjust():
        for _ in range(3000):
            lease.adjust(rpm=1)

    with acquire(limiter, rpm=10) as lease:
        gather([adjust] * 8)
    assert levels(limiter) == {"rpm": 100_000 - 10 - 24_000}
