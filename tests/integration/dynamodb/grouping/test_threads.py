"""Threads share writes as tasks do."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.dynamodb.grouping.links import slow
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter

USER, API = "user-1", "api"


@pytest.fixture
def limiter(sync_repo):
    return SyncRateLimiter(sync_repo)


def take(limiter, amount=1):
    try:
        with limiter.acquire(USER, API, {"rpm": amount}) as lease:
            lease.adjust(rpm=0)
            return True
    except RateLimitExceeded:
        return False


def test_as_many_threads_win_as_there_are_tokens_with_few_writes(sync_repo, limiter, proxy):
    sync_repo.set_system_defaults([Limit.per_minute("rpm", 100)])
    assert take(limiter, 0)
    with slow(proxy, 5), proxy.measure() as seen, ThreadPoolExecutor(30) as pool:
        granted = list(pool.map(lambda _: take(limiter), range(240)))
    assert sum(granted) == 100
    assert sync_repo.get_bucket(USER, API, "rpm").tokens == 0
    assert seen.calls <= 60


def test_what_fails_in_threads_is_given_back(sync_repo, limiter, proxy):
    sync_repo.set_system_defaults([Limit.per_minute("rpm", 100)])

    def fail(number):
        try:
            with limiter.acquire(USER, API, {"rpm": 2}) as lease:
                lease.consume(rpm=1)
                if number % 2:
                    raise ArithmeticError
        except ArithmeticError:
            pass

    with slow(proxy, 2), ThreadPoolExecutor(10) as pool:
        list(pool.map(fail, range(30)))
    assert sync_repo.get_bucket(USER, API, "rpm").tokens == 100 - 15 * 3
