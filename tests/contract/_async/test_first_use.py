"""A limiter with a URL opens its store on first use, and again after it was closed."""

import asyncio  # unasync: remove
import threading
import warnings

import pytest
from zae_limiter_contract.together import agather

from tests.contract.engines import dynamodb_url, sqlite_url
from zae_limiter import (
    InfrastructureError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    ValidationError,
)
from zae_limiter.testing import FakeClock

LIMITS = [Limit.per_minute("rpm", 10)]


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def any_url(request, unique_name, tmp_path):
    """The URL of an empty store that may be opened twice, on every engine."""
    if request.param == "memory":
        return f"memory://{unique_name}"
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return dynamodb_url(request.getfixturevalue("dynamodb_table"))


async def granted(limiter):
    try:
        async with limiter.acquire("user", "api", {"rpm": 1}):
            return True
    except RateLimitExceeded:
        return False


async def test_nothing_is_opened_before_the_first_use(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    limiter = RateLimiter(url="sqlite:///limits.db", namespace="red", request_timeout=5)
    assert limiter.repository is None
    assert "sqlite:///limits.db on first use" in repr(limiter)
    assert not list(tmp_path.iterdir())
    async with limiter:
        await limiter.set_system_defaults(LIMITS)
        assert limiter.repository is not None
        assert limiter.repository.namespace_name == "red"
        assert list(tmp_path.glob("limits.db"))


async def test_first_uses_at_once_open_the_store_once(any_url):
    async with RateLimiter(url=any_url, clock=FakeClock(), request_timeout=10) as limiter:
        opened = await agather([limiter.open for _ in range(8)])
        assert len({id(repository) for repository in opened}) == 1
        assert isinstance(opened[0], Repository)
        await limiter.set_system_defaults(LIMITS)
        won = await agather([lambda: granted(limiter) for _ in range(15)])
        assert sorted(won) == [False] * 5 + [True] * 10


async def test_a_closed_limiter_opens_its_store_again(any_url):
    limiter = RateLimiter(url=any_url, clock=FakeClock(), request_timeout=10)
    await limiter.close()  # it has opened nothing yet
    await limiter.set_system_defaults(LIMITS)
    first = limiter.repository
    assert await granted(limiter)
    await limiter.close()
    await limiter.close()
    assert limiter.repository is None
    with pytest.raises(InfrastructureError, match="closed"):
        await first.ping()
    assert await limiter.available("user", "api") == {"rpm": 9}
    assert limiter.repository is not first
    await limiter.close()


class ClosingClock(FakeClock):
    """Closes a limiter when it is first asked for the time, which is while a store is opened."""

    limiter = None

    def __call__(self):
        limiter, self.limiter = self.limiter, None
        if limiter is not None:
            thread = threading.Thread(target=self._close, args=[limiter])
            thread.start()
            thread.join()
        return super().__call__()

    def _close(self, limiter):
        asyncio.run(limiter.close())  # unasync: remove
        # sync: limiter.close()


async def test_a_limiter_closed_while_it_opens_its_store_leaves_nothing_open(any_url):
    clock = ClosingClock()
    limiter = clock.limiter = RateLimiter(url=any_url, clock=clock, request_timeout=10)
    repository = await limiter.open()
    assert clock.limiter is None
    assert limiter.repository is None
    with pytest.raises(InfrastructureError, match="closed"):
        await repository.ping()

    await limiter.set_system_defaults(LIMITS)  # a later call opens it again
    assert await granted(limiter)
    await limiter.close()


async def test_a_store_that_cannot_be_opened_is_tried_again_and_named(tmp_path):
    folder = tmp_path / "missing"
    url = f"sqlite:///{folder}/limits.db"
    async with RateLimiter(url=url) as limiter:
        for _ in range(2):
            with pytest.raises(InfrastructureError, match="cannot open") as caught:
                await limiter.get_entity("user")
            assert url in str(caught.value)
            assert str(caught.value).count("cannot open") == 1
        folder.mkdir()
        assert await limiter.get_entity("user") is None


async def test_the_error_of_a_wrong_endpoint_shows_no_password():
    url = "dynamodb://stack?region=us-east-1&endpoint_url=http://user:p@ssw0rd@127.0.0.1:1"
    with pytest.raises(ValidationError, match="must not contain a user") as caught:
        RateLimiter(url=url)
    assert "ssw0rd" not in str(caught.value)


async def test_an_outage_at_the_first_use_follows_the_policy(tmp_path):
    url = "dynamodb://stack?region=us-east-1&endpoint_url=http://127.0.0.1:1"
    limiter = RateLimiter(url=url, on_unavailable="allow", auto_update=False)
    async with limiter.acquire("user", "api", {"rpm": 1}) as lease:
        assert lease.consumed == {}
    with pytest.raises(InfrastructureError, match="cannot open"):
        async with limiter.acquire("user", "api", {"rpm": 1}, on_unavailable="block"):
            pass


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"url": "redis://x"}, "url"),
        ({"url": 5}, "url"),
        ({"url": "memory://", "namespace": "a b"}, "namespace"),
        ({"url": "memory://", "config_cache_ttl": -1}, "config_cache_ttl"),
        ({"url": "memory://", "request_timeout": 0}, "request_timeout"),
        ({"url": "memory://", "provision": "sometimes"}, "provision"),
        ({"url": "memory://", "max_shards": 0}, "max_shards"),
        ({"url": "memory://", "on_unavailable": "maybe"}, "on_unavailable"),
        ({"url": "sqlite:///limits.db?synchronous=bogus"}, "synchronous"),
        ({"url": "sqlite:///limits.db?wal_limit_mb=abc"}, "wal_limit_mb"),
        ({"url": "dynamodb://stack?region=US_EAST!"}, "region"),
        ({"url": "dynamodb://stack?endpoint_url=ftp://x"}, "endpoint_url"),
    ],
)
async def test_a_wrong_option_is_refused_when_the_limiter_is_made(options, field):
    with pytest.raises(ValidationError) as caught:
        RateLimiter(**options)
    assert caught.value.field == field


async def test_a_limiter_has_a_repository_or_a_url():
    async with await Repository.open(url="memory://") as repository:
        for options in ({"url": "memory://"}, {"namespace": "red"}, {"request_timeout": 5}):
            with pytest.raises(ValidationError, match="repository"):
                RateLimiter(repository, **options)
        assert await RateLimiter(repository).open() is repository
    with pytest.raises(ValidationError, match="drop"), pytest.warns(match="name="):
        RateLimiter(url="memory://", name="stack")


async def test_options_apply_to_the_store_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{tmp_path}/limits.db")
    async with RateLimiter(namespace="red") as limiter:
        repository = await limiter.open()
        assert (repository.namespace_name, repository.capabilities.engine) == ("red", "sqlite")


@pytest.mark.parametrize("more", [{"url": "memory://"}, {"namespace": "red"}, {"max_shards": 4}])
async def test_options_of_an_own_store_are_not_deprecated(monkeypatch, more):
    monkeypatch.setenv("ZAEL_URL", "memory://")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limiter = RateLimiter(on_unavailable="allow", auto_update=False, **more)
    async with limiter:
        assert (await limiter.open()).namespace_name == more.get("namespace", "default")
