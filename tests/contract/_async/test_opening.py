"""URLs, the environment, the builder, and keywords of old."""

import math

import pytest
from zae_limiter_contract.bad_input import TTL_MULTIPLIERS

from tests.support.dynamodb import shared_endpoint
from zae_limiter import (
    InfrastructureNotFoundError,
    Limit,
    NamespaceNotFoundError,
    RateLimiter,
    Repository,
    ValidationError,
)

LIMITS = [Limit.per_minute("rpm", 10)]
NOT_SECONDS = [math.inf, -math.inf, math.nan, -1, "2", None, True, 1e300]
NOT_CLOCKS = [
    lambda: 1_767_225_600_000.0,
    lambda: "1767225600000",
    lambda: None,
    lambda: True,
    1_767_225_600_000,
]


async def take(limiter, limits=None):
    async with limiter.acquire("user", "api", {"rpm": 1}, limits):
        pass


async def test_unnamed_memory_is_private_to_each_open():
    first, second = await Repository.open(url="memory://"), await Repository.open(url="memory://")
    await first.set_system_defaults(LIMITS)
    assert await second.get_system_defaults() == ([], None)


async def test_named_memory_is_shared_and_outlives_its_users(unique_name):
    async with await Repository.open(url=f"memory://{unique_name}") as first:
        await first.set_system_defaults(LIMITS)
    async with await Repository.open(url=f"memory://{unique_name}") as second:
        assert await second.get_system_defaults() == (LIMITS, None)


async def test_differently_named_memory_is_not_shared(unique_name):
    first = await Repository.open(url=f"memory://{unique_name}")
    await first.set_system_defaults(LIMITS)
    second = await Repository.open(url=f"memory://{unique_name}-2")
    assert await second.get_system_defaults() == ([], None)


async def test_the_environment_names_store_and_namespace(monkeypatch, tmp_path):
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{tmp_path}/limits.db")
    monkeypatch.setenv("ZAEL_NAMESPACE", "red")
    async with await Repository.open() as repository:
        assert repository.namespace_name == "red"
        assert repository.capabilities.engine == "sqlite"


async def test_a_limiter_without_a_repository_opens_the_one_of_the_environment_and_closes_it(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{tmp_path}/limits.db")
    async with RateLimiter() as limiter:
        assert limiter.repository is None
        await take(limiter, LIMITS)
        await limiter.set_system_defaults(LIMITS)
        await take(limiter)
        assert await limiter.available("user", "api") == {"rpm": 8}
    async with RateLimiter() as limiter:
        assert await limiter.available("user", "api") == {"rpm": 8}


async def test_the_builder_does_not_make_a_namespace_unless_told_to(unique_name):
    def builder():
        return Repository.builder().url(f"memory://{unique_name}").namespace("red")

    with pytest.raises(NamespaceNotFoundError):
        await builder().build()
    await builder().register_missing_namespace().build()
    await builder().build()


async def test_without_a_url_the_store_is_dynamodb(monkeypatch):
    monkeypatch.delenv("ZAEL_URL", raising=False)
    monkeypatch.delenv("ZAEL_STACK", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", shared_endpoint())
    with pytest.raises(InfrastructureNotFoundError) as caught:
        await Repository.open(provision="never")
    assert caught.value.stack_name == "zae-limiter"


@pytest.mark.parametrize(
    "url", ["memory", "redis://x", "sqlite://", "sqlite:///", "memory://a/b", 5, "file:///a"]
)
async def test_a_url_that_leads_nowhere_is_refused(monkeypatch, url):
    monkeypatch.delenv("ZAEL_URL", raising=False)
    with pytest.raises(ValidationError) as caught:
        await Repository.open(url=url)
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("namespace", "a b"),
        *(("config_cache_ttl", seconds) for seconds in NOT_SECONDS),
        ("request_timeout", 0),
        *(("request_timeout", seconds) for seconds in NOT_SECONDS),
        ("provision", "sometimes"),
    ],
)
async def test_a_setting_that_makes_no_sense_is_refused_by_name(setting, value):
    with pytest.raises(ValidationError) as caught:
        await Repository.open(url="memory://", **{setting: value})
    assert caught.value.field == setting


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("bucket_ttl_multiplier", multiplier) for multiplier in TTL_MULTIPLIERS),
        *(("config_cache_ttl", seconds) for seconds in NOT_SECONDS),
        *(("request_timeout", seconds) for seconds in NOT_SECONDS),
        ("on_unavailable", "maybe"),
        ("usage_retention_days", 0),
        ("audit_retention_days", "90"),
    ],
)
async def test_a_setting_of_the_builder_that_makes_no_sense_is_refused_by_name(setting, value):
    with pytest.raises(ValidationError) as caught:
        getattr(Repository.builder(), setting)(value)
    assert caught.value.field == setting


@pytest.mark.parametrize("clock", NOT_CLOCKS)
async def test_a_clock_that_does_not_return_whole_milliseconds_is_refused(clock):
    with pytest.raises(ValidationError, match="clock"):
        RateLimiter(clock=clock)
    with pytest.raises(ValidationError, match="clock"):
        Repository.builder().clock(clock)
    with pytest.raises(ValidationError, match="clock"):
        await Repository.open(url="memory://", clock=clock)
    async with await Repository.open(url="memory://") as repository:
        with pytest.raises(ValidationError, match="clock"):
            RateLimiter(repository, clock=clock)


async def test_keywords_of_old_work_and_warn():
    repository = await Repository.open(url="memory://")
    with pytest.warns(DeprecationWarning, match="on_unavailable"):
        limiter = RateLimiter(repository, on_unavailable="allow")
    await take(limiter, LIMITS)
    with pytest.raises(TypeError, match="unknown"):
        RateLimiter(repository, unknown=1)


async def test_a_limiter_is_given_an_open_repository_or_none():
    with pytest.raises(ValidationError) as caught:
        RateLimiter("memory://")
    assert caught.value.field == "repository"
