"""What a lease writes, and when. The contract suite has the rest, for every engine."""

import sys
import time
from contextlib import suppress

import pytest
from zae_limiter_contract.together import gather

from tests.support.faulty_buckets import Fault, open_faulty
from zae_limiter import (
    LeaseExpiredError,
    Limit,
    RateLimiterUnavailable,
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
        with pytest.raises(ValidationError, match=r"adjust\.rpm: is more than this lease holds"):
            lease.adjust(rpm=-1)
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


@pytest.mark.parametrize("method", ["adjust", "consume", "release", "settle"])
def test_an_unknown_limit_is_refused_and_the_known_ones_are_named(limiter, method):
    with acquire(limiter, rpm=1) as lease, pytest.raises(ValidationError, match="rpm, tpm"):
        getattr(lease, method)(rph=1)


@pytest.mark.parametrize("method", ["adjust", "consume", "release", "settle"])
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


def test_a_credit_goes_to_the_newest_charge_and_a_debt_to_the_first(repository, limiter):
    repository.create_entity("key")
    with acquire(limiter, "key", tpm=50) as lease:
        repository.set_parent("key", "team")
        lease.consume(tpm=30)
        assert levels(limiter, "team")["tpm"] == 970
        lease.adjust(tpm=-20)
    assert levels(limiter, "team")["tpm"] == 990  # twenty of its thirty have come back
    repository.set_parent("key", None, False)
    with acquire(limiter, "key", tpm=50) as lease:
        repository.set_parent("key", "team")
        lease.consume(tpm=30)
        lease.adjust(tpm=20)
    assert levels(limiter, "team")["tpm"] == 960


@pytest.mark.parametrize(
    ("steps", "cost"),
    [
        ([("settle", 800), ("consume", 200)], 800),
        ([("settle", 800), ("adjust", -100)], 700),
        ([("settle", 400), ("adjust", -300), ("adjust", 300)], 100),
        ([("settle", 100), ("adjust", -100), ("adjust", 200)], 0),
        ([("settle", 100), ("adjust", -100)], 0),
        ([("settle", 5), ("release", 8)], 0),
        ([("settle", 5), ("release", 8), ("consume", 20)], 0),
        ([("settle", 800), ("settle", 30)], 30),
    ],
)
def test_a_failed_block_costs_what_was_settled_and_no_more(limiter, steps, cost):
    with acquire(limiter, tpm=500):  # so that a refund of too much is seen
        pass
    with suppress(Oops), acquire(limiter, tpm=10) as lease:
        for operation, amount in steps:
            getattr(lease, operation)(tpm=amount)
        raise Oops
    assert levels(limiter) == {"rpm": 10, "tpm": 500 - cost}


def test_a_write_that_was_not_made_is_not_booked(clock):
    repository, buckets = open_faulty(clock)
    repository.set_system_defaults([RPM, TPM])
    limiter = SyncRateLimiter(repository)
    with acquire(limiter, tpm=100) as lease:
        buckets.fault = Fault.NOT_WRITTEN
        with pytest.raises(RateLimiterUnavailable):
            lease.release(tpm=60)
        assert lease.consumed == {"tpm": 100}
        with pytest.raises(RateLimiterUnavailable):
            lease.settle(tpm=150, now=True)
        assert lease.consumed == {"tpm": 150}  # written at the end
        buckets.fault = Fault.NONE
    assert levels(limiter) == {"rpm": 10, "tpm": 850}


def test_what_other_threads_do_while_a_write_fails_is_not_lost(clock):
    repository, buckets = open_faulty(clock)
    repository.set_system_defaults([RPM, TPM])
    limiter = SyncRateLimiter(repository)
    with acquire(limiter, rpm=5, tpm=100) as lease:
        lease.settle(tpm=80)
        buckets.fault = Fault.NOT_WRITTEN
        buckets.meanwhile = lambda: lease.adjust(rpm=1, tpm=7)
        with pytest.raises(RateLimiterUnavailable):
            lease.release(tpm=60)
        assert lease.consumed == {"rpm": 6, "tpm": 87}
        buckets.meanwhile = lambda: lease.adjust(tpm=-10)
        with pytest.raises(RateLimiterUnavailable):
            lease.settle(tpm=200, now=True)
        assert lease.consumed == {"rpm": 6, "tpm": 190}
        buckets.fault = Fault.NONE
    assert levels(limiter) == {"rpm": 4, "tpm": 810}


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
