"""A lease gives back and adjusts just what it was granted, whatever happens to the limits."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.regression.faults import Failure, a_failing_block
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

RPM = Limit.per_minute("rpm", 200)


@pytest.fixture
def hasty_threads():
    """Threads that are switched at nearly every step."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def tokens(repo, entity_id):
    return repo.get_bucket(entity_id, "api", "rpm").tokens


def use(limiter, entity_id, amount):
    """Leave room in the bucket, so that a credit that is too large would show."""
    with limiter.acquire(entity_id, "api", {"rpm": amount}):
        pass


def in_threads(number, call):
    """Run it in several threads that start together."""
    start = threading.Barrier(number)

    def run():
        start.wait()
        call()

    with ThreadPoolExecutor(number) as pool:
        for future in [pool.submit(run) for _ in range(number)]:
            future.result()


# --- limits that change under a lease


def test_an_adjustment_is_written_after_a_new_limit_has_rejected_a_consume(repo, limiter):
    repo.set_limits("user", [RPM], "api")
    with limiter.acquire("user", "api", {"rpm": 10}) as lease:
        repo.set_limits("user", [RPM, Limit.per_minute("tpm", 5)], "api")
        with pytest.raises(RateLimitExceeded):
            lease.consume(rpm=1, tpm=6)
        lease.adjust(rpm=20)
    assert limiter.available("user", "api") == {"rpm": 170, "tpm": 5}
    assert repo.lost_settlements == 0


def test_a_failed_block_gives_back_what_it_took_although_a_new_limit_rejected_it(repo, limiter):
    repo.set_limits("user", [RPM], "api")
    use(limiter, "user", 100)
    with suppress(RateLimitExceeded), limiter.acquire("user", "api", {"rpm": 10}) as lease:
        repo.set_limits("user", [RPM, Limit.per_minute("tpm", 5)], "api")
        lease.consume(rpm=1, tpm=6)
    assert limiter.available("user", "api") == {"rpm": 100, "tpm": 5}


def test_a_parent_that_gets_limits_under_a_lease_is_credited_only_what_it_was_charged(
    repo, limiter
):
    repo.set_limits("child", [RPM], "api")
    repo.create_entity("child", parent_id="parent", cascade=True)
    use(limiter, "child", 100)
    with a_failing_block(), limiter.acquire("child", "api", {"rpm": 50}) as lease:
        repo.set_limits("parent", [RPM], "api")
        use(limiter, "parent", 80)
        lease.consume(rpm=1)
        assert (tokens(repo, "child"), tokens(repo, "parent")) == (49, 119)
        raise Failure
    assert (tokens(repo, "child"), tokens(repo, "parent")) == (100, 120)


def test_a_parent_whose_limits_are_deleted_under_a_lease_gets_its_charge_back(repo, limiter):
    repo.set_limits("child", [RPM], "api")
    repo.set_limits("parent", [RPM], "api")
    repo.create_entity("child", parent_id="parent", cascade=True)
    use(limiter, "parent", 80)
    with a_failing_block(), limiter.acquire("child", "api", {"rpm": 50}) as lease:
        repo.delete_limits("parent", "api")
        lease.consume(rpm=1)
        raise Failure
    assert (tokens(repo, "child"), tokens(repo, "parent")) == (200, 120)


def test_a_release_goes_back_to_the_buckets_that_were_charged(repo, limiter):
    repo.set_limits("child", [RPM], "api")
    repo.set_limits("parent", [RPM], "api")
    repo.create_entity("child", parent_id="parent", cascade=True)
    use(limiter, "parent", 80)
    with limiter.acquire("child", "api", {"rpm": 50}) as lease:
        repo.delete_limits("parent", "api")
        lease.consume(rpm=5)  # from the child alone
        lease.release(rpm=15)  # five to the child alone, ten to both
    assert (tokens(repo, "child"), tokens(repo, "parent")) == (160, 80)


def test_a_limit_may_be_called_self(repo, limiter):
    repo.set_limits("user", [Limit.per_minute("self", 100)], "api")
    with limiter.acquire("user", "api", {"self": 10}) as lease:
        lease.consume(self=5)
        lease.release(self=3)
        lease.adjust(self=20)
    assert limiter.available("user", "api") == {"self": 68}


def test_a_lease_that_is_used_often_stays_quick(repo, limiter):
    repo.set_limits("user", [Limit.per_minute("rpm", 100_000)], "api")
    with limiter.acquire("user", "api", {"rpm": 10}) as lease:
        began = time.monotonic()
        for _ in range(150):
            lease.consume(rpm=3)
            lease.release(rpm=1)
        assert time.monotonic() - began < 1
    assert limiter.available("user", "api") == {"rpm": 100_000 - 10 - 300}


# --- many who use one lease


def test_no_adjustment_of_many_threads_is_lost(repo, limiter, hasty_threads):
    repo.set_limits("user", [Limit.per_minute("rpm", 100_000)], "api")

    def adjust():
        for _ in range(3000):
            lease.adjust(rpm=1)

    with limiter.acquire("user", "api", {"rpm": 10}) as lease:
        in_threads(8, adjust)
    assert limiter.available("user", "api") == {"rpm": 100_000 - 10 - 24_000}


@pytest.mark.parametrize("fails", [False, True])
def test_a_lease_knows_all_that_many_threads_consumed_and_released(
    repo, limiter, hasty_threads, fails
):
    repo.set_limits("user", [Limit.per_minute("rpm", 10_000)], "api")
    use(limiter, "user", 1000)

    def work():
        for _ in range(10):
            lease.consume(rpm=3)
            lease.release(rpm=1)

    with suppress(Failure), limiter.acquire("user", "api", {"rpm": 10}) as lease:
        in_threads(8, work)
        assert lease.consumed == {"rpm": 170}
        if fails:
            raise Failure
    assert limiter.available("user", "api") == {"rpm": 9000 if fails else 8830}


async def test_tasks_that_consume_side_by_side_get_everything_back(url, clock):
    async with await Repository.open(url=url, clock=clock) as repo:
        limiter = RateLimiter(repo)
        await repo.set_limits("child", [RPM], "api")
        await repo.create_entity("child", parent_id="parent", cascade=True)
        await repo.set_limits("parent", [Limit.per_minute("rpm", 60)], "api")
        async with limiter.acquire("parent", "api", {"rpm": 10}):
            pass
        with a_failing_block():
            async with limiter.acquire("child", "api", {"rpm": 10}) as lease:
                results = await asyncio.gather(
                    *(lease.consume(rpm=3) for _ in range(20)), return_exceptions=True
                )
                rejected = [each for each in results if isinstance(each, RateLimitExceeded)]
                assert len(rejected) == 7  # the parent has forty for them: thirteen times three
                assert lease.consumed == {"rpm": 10 + 13 * 3}
                raise Failure
        assert (await repo.get_bucket("child", "api", "rpm")).tokens == 200
        assert (await repo.get_bucket("parent", "api", "rpm")).tokens == 50


async def test_a_consume_under_way_when_the_block_fails_is_given_back(sqlite_url, path, clock):
    async with await Repository.open(url=sqlite_url, clock=clock) as repo:
        limiter = RateLimiter(repo)
        await repo.set_limits("user", [RPM], "api")
        async with limiter.acquire("user", "api", {"rpm": 100}):
            pass
        with a_failing_block():
            async with limiter.acquire("user", "api", {"rpm": 10}) as lease:
                consuming = asyncio.create_task(lease.consume(rpm=5))
                await asyncio.sleep(0)  # it is on its way to the store
                raise Failure
        await asyncio.gather(consuming, return_exceptions=True)
        assert (await repo.get_bucket("user", "api", "rpm")).tokens == 100
