"""A change of the configuration: who sees it, and when."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from tests.regression.faults import HeldFile
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)


def rpm(number):
    return [Limit.per_minute("rpm", number)]


async def cancelled_but_done(path, operation):
    """Cancel an operation that the writer has begun: it is carried out."""
    with HeldFile(path) as held:
        task = asyncio.create_task(operation)
        await asyncio.sleep(0.05)  # the writer waits for the file on its behalf
        task.cancel()
        await asyncio.sleep(0)
        held.free()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
async def arepo(sqlite_url, clock):
    async with await Repository.open(url=sqlite_url, clock=clock) as repo:
        await repo.set_system_defaults(rpm(10))
        yield repo


async def test_limits_of_a_cancelled_set_limits_that_was_committed_are_in_force(arepo, path):
    limiter = RateLimiter(arepo)
    assert await limiter.available("user", "api") == {"rpm": 10}
    await cancelled_but_done(path, arepo.set_limits("user", rpm(50), "api"))
    assert await arepo.get_limits("user", "api") == rpm(50)
    assert await limiter.available("user", "api") == {"rpm": 50}


async def test_limits_of_a_cancelled_delete_limits_that_was_committed_are_gone(arepo, path):
    limiter = RateLimiter(arepo)
    await arepo.set_limits("user", rpm(50), "api")
    assert await limiter.available("user", "api") == {"rpm": 50}
    await cancelled_but_done(path, arepo.delete_limits("user", "api"))
    assert await limiter.available("user", "api") == {"rpm": 10}


async def test_defaults_that_were_committed_although_cancelled_are_in_force(arepo, path):
    limiter = RateLimiter(arepo)
    assert await limiter.available("user", "api") == {"rpm": 10}
    await cancelled_but_done(path, arepo.set_resource_defaults("api", rpm(70)))
    assert await limiter.available("user", "api") == {"rpm": 70}


async def test_an_entity_that_was_committed_although_cancelled_cascades(arepo, path):
    limiter = RateLimiter(arepo)
    assert await limiter.available("user", "api") == {"rpm": 10}
    await arepo.set_limits("team", rpm(3), "api")
    await cancelled_but_done(path, arepo.create_entity("user", parent_id="team", cascade=True))
    assert await limiter.available("user", "api") == {"rpm": 3}
    await cancelled_but_done(path, arepo.delete_entity("user"))
    assert await limiter.available("user", "api") == {"rpm": 10}


# --- changes made elsewhere


@pytest.fixture(params=["memory", "sqlite"])
def two(request, sqlite_url, clock, tmp_path):
    """Two repositories of one store, each with a cache of its own."""
    url = f"memory://{tmp_path.name}" if request.param == "memory" else sqlite_url
    repositories = [SyncRepository.open(url=url, clock=clock) for _ in range(2)]
    yield repositories
    for repository in repositories:
        repository.close()


def test_questions_agree_with_acquire_when_another_repository_changed_the_limits(two):
    ours, theirs = two
    ours.set_system_defaults(rpm(100))
    limiter, other = SyncRateLimiter(ours), SyncRateLimiter(theirs)
    assert limiter.available("user", "api") == {"rpm": 100}
    theirs.set_system_defaults(rpm(5))
    with other.acquire("user", "api", {"rpm": 1}):
        pass

    found = limiter.check_availability("user", "api", {"rpm": 6})
    assert (found.available, found.retry_after_seconds) == (False, float("inf"))
    assert limiter.time_until_available("user", "api", {"rpm": 5}) == 12.0
    assert limiter.available("user", "api") == {"rpm": 4}
    assert wait_told_to(limiter, 5) == 12.0


def test_questions_agree_with_acquire_when_the_parents_limits_were_changed(two):
    ours, theirs = two
    ours.set_system_defaults(rpm(100))
    ours.create_entity("user", parent_id="team", cascade=True)
    limiter, other = SyncRateLimiter(ours), SyncRateLimiter(theirs)
    with limiter.acquire("user", "api", {"rpm": 1}):
        pass
    theirs.set_limits("team", rpm(5), "api")
    with other.acquire("team", "api", {"rpm": 1}):
        pass
    assert limiter.time_until_available("user", "api", {"rpm": 6}) == float("inf")
    assert wait_told_to(limiter, 6) == float("inf")


def wait_told_to(limiter, amount):
    """How long a rejection says to wait."""
    acquire = limiter.acquire("user", "api", {"rpm": amount})
    with pytest.raises(RateLimitExceeded) as rejected, acquire:
        pass
    return rejected.value.retry_after_seconds


# --- repositories that share a cache


def test_a_scoped_repository_remembers_buckets_as_long_as_it_was_told(sqlite_url, path, clock):
    with SyncRepository.open(url=sqlite_url, clock=clock) as repo:
        repo.set_system_defaults(rpm(10))
        scopes = {
            multiplier: repo.namespace("default", bucket_ttl_multiplier=multiplier)
            for multiplier in (0, 3, 20)
        }
        for multiplier, scope in [(7, repo), *scopes.items(), *reversed(scopes.items())]:
            forget_buckets(path)
            with SyncRateLimiter(scope).acquire("user", "api", {"rpm": 1}):
                pass
            expected = multiplier * 60_000 + clock() if multiplier else None
            assert expiry(path, "user") == expected


def forget_buckets(path):
    """Behind everybody's back, so that no cache is emptied."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM bucket")


def expiry(path, entity_id):
    with closing(sqlite3.connect(path)) as connection:
        statement = "SELECT expires_ms FROM bucket WHERE entity_id = ?"
        return connection.execute(statement, (entity_id,)).fetchone()[0]


@pytest.mark.parametrize("changed_through", ["the repository", "the scope"])
def test_limits_set_through_one_scope_are_in_force_for_the_other(repo, changed_through):
    repo.set_system_defaults(rpm(10))
    scope = repo.namespace("default", bucket_ttl_multiplier=3)
    changed, other = (repo, scope) if changed_through == "the repository" else (scope, repo)
    for each in (changed, other):
        assert SyncRateLimiter(each).available("user", "api") == {"rpm": 10}
    changed.set_limits("user", rpm(50), "api")
    for each in (changed, other):
        assert SyncRateLimiter(each).available("user", "api") == {"rpm": 50}


def test_limits_set_through_the_repository_are_in_force_for_a_limiter_with_its_own_ttl(repo):
    with pytest.warns(DeprecationWarning, match="ttl"):
        limiter = SyncRateLimiter(repo, bucket_ttl_refill_multiplier=3)
    repo.set_system_defaults(rpm(10))
    assert limiter.available("user", "api") == {"rpm": 10}
    repo.set_limits("user", rpm(50), "api")
    assert limiter.available("user", "api") == {"rpm": 50}


def test_creating_an_entity_evicts_nothing_but_that_entity(repo, limiter):
    repo.set_system_defaults(rpm(10))
    for number in range(20):
        limiter.available(f"user-{number}", "api")
        limiter.available(f"user-{number}", "mail")
    repo.create_entity("user-7")
    repo.set_limits("user-8", rpm(5))
    repo.delete_entity("user-9")
    assert repo.get_cache_stats().size == 2 * 17
    before = repo.get_cache_stats().hits
    for number in range(7):
        limiter.available(f"user-{number}", "api")
    assert repo.get_cache_stats().hits == before + 7


def test_an_entity_is_seen_at_once_by_those_who_asked_before(repo, limiter):
    repo.set_system_defaults(rpm(10))
    repo.set_limits("team", rpm(3))
    assert limiter.available("user", "api") == {"rpm": 10}
    repo.create_entity("user", parent_id="team", cascade=True)
    assert limiter.available("user", "api") == {"rpm": 3}
    repo.delete_entity("user")
    assert limiter.available("user", "api") == {"rpm": 10}
