"""The most dangerous failures once more, in the tree for threads."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.tables import store_url
from tests.support.dynamodb.world import Failure, failing
from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock

TEN = Limit.per_minute("rpm", 10)
CARRIED_OUT = pytest.mark.parametrize(
    "kind", ["lose_answer", "cut_answer", "garble", "error_after"]
)


class Threads:
    """A limiter for threads, through the proxy."""

    def __init__(self, repo):
        self.repo, self.limiter = repo, SyncRateLimiter(repo)

    def acquire(self, **consume):
        return self.limiter.acquire("user-1", "api", consume)

    def take(self, **consume):
        with self.acquire(**consume):
            pass

    def level(self):
        return self.repo.get_bucket("user-1", "api", "rpm").tokens_milli


@pytest.fixture
def threads(stack, proxy, unique_name):
    url = store_url(stack, proxy.url)
    with SyncRepository.open(
        unique_name, url=url, clock=FakeClock(), request_timeout=TIMEOUT_S
    ) as repo:
        repo.set_system_defaults([TEN])
        threads = Threads(repo)
        threads.take(rpm=1)
        yield threads


@pytest.mark.fast("cut_answer", "error_after")
@CARRIED_OUT
def test_a_charge_without_a_proper_answer_is_made_and_admitted_once(threads, proxy, kind):
    with proxy.fault(kind, operation="UpdateItem", times=1):
        threads.take(rpm=2)
    assert threads.level() == 7000


@pytest.mark.fast("cut_answer", "error_after")
@CARRIED_OUT
def test_a_credit_without_a_proper_answer_is_made_once(threads, proxy, kind):
    with failing(), threads.acquire(rpm=3):
        proxy.fault(kind, operation="UpdateItem", times=1)
        raise Failure
    assert threads.level() == 9000
    assert threads.repo.lost_settlements == 0


@pytest.mark.fast("cut_answer", "error_after")
@CARRIED_OUT
def test_a_debt_without_a_proper_answer_is_made_once(threads, proxy, kind):
    with threads.acquire(rpm=3) as lease:
        lease.adjust(rpm=20)
        proxy.fault(kind, operation="UpdateItem", times=1)
    assert threads.level() == -14_000


@pytest.mark.fast("lose_answer", "garble")
@CARRIED_OUT
def test_a_release_that_was_made_unnoticed_is_not_made_again(threads, proxy, kind):
    threads.take(rpm=3)
    with failing(), threads.acquire(rpm=5) as lease:
        with (
            proxy.fault(kind, operation="UpdateItem", times=1),
            proxy.fault("close"),
            pytest.raises(RateLimiterUnavailable),
        ):
            lease.release(rpm=3)
        raise Failure
    assert threads.level() == 6000


def test_silence_is_decided_within_the_timeout(threads, proxy):
    with Stopwatch() as watch, proxy.fault("black_hole"), pytest.raises(RateLimiterUnavailable):
        threads.take(rpm=1)
    assert watch.within(TIMEOUT_S)
    assert threads.level() == 9000


@pytest.mark.fast("error_before", "throttle")
@pytest.mark.parametrize("kind", ["lose_answer", "error_before", "error_after", "throttle"])
def test_a_crowd_through_faults_gets_no_more_than_is_there(threads, proxy, kind):
    def one(_):
        try:
            threads.take(rpm=1)
        except Exception as error:  # noqa: BLE001 - counted
            return error

    with proxy.fault(kind, operation="UpdateItem", skip=2, times=5), ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(one, range(20)))
    admitted = outcomes.count(None)
    unknown = sum(isinstance(each, RateLimiterUnavailable) for each in outcomes)
    taken = 9 - threads.level() // 1000
    assert admitted <= taken <= min(9, admitted + unknown)
