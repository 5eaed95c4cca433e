"""``zae_limiter.testing.outage`` on every engine, async and sync."""

import asyncio
import threading

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.testing import outage

RPM = Limit.per_minute("rpm", 10)
SOON_S = 0.5  # a breaker opens after that time without an answer; a starved server needs some


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def url(request, tmp_path):
    if request.param == "memory":
        yield "memory://"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/limits.db?synchronous=OFF"
    else:
        with empty_table() as table:
            yield store_url(table, shared_endpoint())


@pytest.fixture
async def repo(url):
    async with await Repository.open(url=url) as repository:
        await repository.set_system_defaults([RPM])
        yield repository


@pytest.fixture
def sync_repo(url):
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([RPM])
        yield repository


async def test_every_call_fails_and_the_store_is_as_before_afterwards(repo):
    limiter = RateLimiter(repo)
    async with limiter.acquire("key", "api", {"rpm": 3}):
        pass
    with outage(repo):
        with pytest.raises(RateLimiterUnavailable) as caught:
            await limiter.acquire("key", "api", {"rpm": 1}).__aenter__()
        assert (caught.value.entity_id, caught.value.resource) == ("key", "api")
        with pytest.raises(RateLimiterUnavailable, match="outage"):
            await repo.set_limits("key", [RPM])
        for call in (repo.ping(), repo.get_entity("key"), repo.get_buckets("key")):
            with pytest.raises(RateLimiterUnavailable):
                await call
        assert not await limiter.is_available()
    assert await repo.ping()
    assert await limiter.available("key", "api") == {"rpm": 7}
    assert await repo.get_limits("key") == []


async def test_the_outage_policy_applies(repo):
    limiter = RateLimiter(repo)
    await repo.set_system_defaults([RPM], "allow")
    with outage(repo):
        async with limiter.acquire("key", "api", {"rpm": 1}):
            pass
        with pytest.raises(RateLimiterUnavailable):
            await limiter.acquire("key", "api", {"rpm": 1}, on_unavailable="block").__aenter__()
    assert repo.uncharged_admissions == 1
    assert await limiter.available("key", "api") == {"rpm": 10}


async def test_an_adjustment_that_meets_the_outage_is_stored_after_it(repo):
    limiter = RateLimiter(repo)
    acquired = limiter.acquire("key", "api", {"rpm": 2})
    lease = await acquired.__aenter__()
    await lease.adjust(rpm=3)
    with outage(limiter):
        await acquired.__aexit__(None, None, None)
        await asyncio.sleep(0.3)  # it is repeated meanwhile
    async with asyncio.timeout(20):
        while await limiter.available("key", "api") != {"rpm": 5}:  # noqa: ASYNC110 - in background
            await asyncio.sleep(0.01)
    assert repo.lost_settlements == 0


async def test_repositories_and_limiters_that_share_the_client_fail_too(repo, url):
    await repo.register_namespace("red")
    red = await repo.namespace("red")
    other = RateLimiter(repo, clock=lambda: 1_800_000_000_000)
    with outage(other):
        for repository in (repo, red, other.repository):
            with pytest.raises(RateLimiterUnavailable):
                await repository.get_entity("key")
    assert await red.get_entity("key") is None


async def test_outages_may_be_nested(repo):
    with outage(repo):
        with outage(repo), pytest.raises(RateLimiterUnavailable):
            await repo.ping()
        with pytest.raises(RateLimiterUnavailable):
            await repo.ping()
    assert await repo.ping()


async def test_the_breaker_stays_open_until_the_outage_ends(url):
    builder = Repository.builder().url(url).request_timeout(SOON_S).on_unavailable("allow")
    async with await builder.build() as repository:
        limiter = RateLimiter(repository)
        await limiter.set_system_defaults([RPM])
        with outage(limiter):
            while not repository.get_stats().breaker_open:
                async with limiter.acquire("key", "api", {"rpm": 1}):
                    pass
            async with limiter.acquire("key", "api", {"rpm": 1}):
                pass  # starts a probe
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
            with outage(limiter):
                pass
            assert repository.get_stats().breaker_open
            assert not await limiter.is_available()
        assert not repository.get_stats().breaker_open
        async with limiter.acquire("key", "api", {"rpm": 1}) as lease:
            assert lease.consumed == {"rpm": 1}


def test_the_breaker_of_the_sync_tree_stays_open_until_the_outage_ends(url):
    builder = SyncRepository.builder().url(url).request_timeout(SOON_S).on_unavailable("allow")
    with builder.build() as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM])
        with outage(limiter):
            while not repository.get_stats().breaker_open:
                with limiter.acquire("key", "api", {"rpm": 1}):
                    pass
            with limiter.acquire("key", "api", {"rpm": 1}):
                pass  # starts a probe
            for thread in threading.enumerate():
                if thread.name == "zael-probe":
                    thread.join()
            assert repository.get_stats().breaker_open
        assert not repository.get_stats().breaker_open
        with limiter.acquire("key", "api", {"rpm": 1}) as lease:
            assert lease.consumed == {"rpm": 1}


def test_the_sync_tree_fails_alike(sync_repo):
    limiter = SyncRateLimiter(sync_repo)
    with outage(sync_repo):
        with pytest.raises(RateLimiterUnavailable), limiter.acquire("key", "api", {"rpm": 1}):
            pass
        with limiter.acquire("key", "api", {"rpm": 1}, on_unavailable="allow"):
            pass
        with pytest.raises(RateLimiterUnavailable):
            sync_repo.ping()
    assert sync_repo.ping()
    assert limiter.available("key", "api") == {"rpm": 10}


def test_a_test_that_fails_inside_leaves_no_outage_behind(sync_repo):
    with pytest.raises(ZeroDivisionError), outage(sync_repo):
        raise ZeroDivisionError
    assert sync_repo.ping()


@pytest.mark.parametrize("value", [None, "memory://", 5, RateLimiter()])
def test_only_an_open_repository_or_its_limiter_can_fail(value):
    with pytest.raises(ValidationError, match="open repository"), outage(value):
        pass
