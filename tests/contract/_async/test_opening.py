"""URLs, the environment, the builder, and keywords of old."""

import math

import pytest
from zae_limiter_contract.bad_input import TTL_MULTIPLIERS

from tests.contract.engines import dynamodb_url, sqlite_url
from tests.support.dynamodb import shared_endpoint
from zae_limiter import (
    InfrastructureError,
    InfrastructureNotFoundError,
    Limit,
    NamespaceNotFoundError,
    RateLimiter,
    Repository,
    ValidationError,
)
from zae_limiter.clock import HostClock, ServerClock
from zae_limiter.store_url import parse_url

LIMITS = [Limit.per_minute("rpm", 10)]
NOT_SECONDS = [math.inf, -math.inf, math.nan, -1, "2", None, True, 1e300]
NOT_CLOCKS = [
    lambda: 1_767_225_600_000.0,
    lambda: "1767225600000",
    lambda: None,
    lambda: True,
    1_767_225_600_000,
]


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def any_url(request, unique_name, tmp_path):
    """The URL of an empty store, on every engine."""
    if request.param == "memory":
        return f"memory://{unique_name}"
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return dynamodb_url(request.getfixturevalue("dynamodb_table"))


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


async def test_building_registers_the_default_namespace(any_url):
    def builder(namespace):
        return Repository.builder().url(any_url).namespace(namespace)

    with pytest.raises(NamespaceNotFoundError):
        await builder("red").build()
    async with await builder("default").build() as repository:
        await repository.register_namespace("red")
        await repository.delete_namespace("default")
    async with await builder("red").build() as red:
        assert (await red.get_namespace("default")).name == "default"


STACK_ARGUMENTS = {"stack": "prod", "region": "eu-west-1", "endpoint_url": "http://localhost:1"}


@pytest.mark.parametrize("argument", STACK_ARGUMENTS)
async def test_arguments_win_over_the_environment(monkeypatch, tmp_path, argument):
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{tmp_path}/limits.db")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", shared_endpoint())
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTTESTTESTTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    given = {argument: STACK_ARGUMENTS[argument]}
    if argument == "endpoint_url":
        given[argument] = shared_endpoint()
    with pytest.raises(InfrastructureNotFoundError) as caught:
        await Repository.open(provision="never", **given)
    assert caught.value.stack_name == given.get("stack", "zae-limiter")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("argument", STACK_ARGUMENTS)
@pytest.mark.parametrize("url", ["memory://", "dynamodb://other?region=us-east-1"])
async def test_arguments_that_contradict_each_other_are_refused(url, argument):
    with pytest.raises(ValidationError, match=f"{argument}=.*drop") as caught:
        await Repository.open(url=url, **{argument: STACK_ARGUMENTS[argument]})
    assert caught.value.field == "url"


async def test_a_url_wins_over_a_stack_of_the_environment(monkeypatch):
    monkeypatch.setenv("ZAEL_STACK", "prod")
    repository = await Repository.open(url="memory://")
    assert repository.capabilities.engine == "memory"


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
        ("usage_retention_days", -1),
        ("usage_retention_days", 1.5),
        ("usage_retention_days", 36_501),
        ("audit_retention_days", "90"),
    ],
)
async def test_a_setting_of_the_builder_that_makes_no_sense_is_refused_by_name(setting, value):
    with pytest.raises(ValidationError) as caught:
        getattr(Repository.builder(), setting)(value)
    assert caught.value.field == setting


async def test_without_retention_no_usage_is_kept(any_url):
    builder = Repository.builder().url(any_url).usage_retention_days(0)
    async with await builder.build() as repository:
        await take(RateLimiter(repository), LIMITS)
        assert (await repository.get_usage_summary("user")).total == {}
        assert await repository.get_usage_snapshots("user") == ([], None)
        assert (await repository.get_top_usage()).consumers == []
        assert (await repository.get_bucket("user", "api", "rpm")).tokens < 10
    async with await Repository.open(url=any_url) as repository:  # a property of the store
        await take(RateLimiter(repository), LIMITS)
        assert (await repository.get_usage_summary("user")).total == {}


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


async def test_levels_accept_a_keyword_of_old(any_url):
    own = [Limit.per_minute("rpm", 3)]
    async with await Repository.open(url=any_url) as repository:
        limiter = RateLimiter(repository)
        await limiter.set_limits("known", LIMITS)
        for entity_id, stored, capacity in (
            ("known", True, 10),
            ("known", False, 3),
            ("unknown", True, 3),
        ):
            with pytest.warns(DeprecationWarning, match="use_stored_limits") as warned:
                found = await limiter.available(entity_id, "api", own, use_stored_limits=stored)
            assert found == {"rpm": capacity}
            assert warned[0].filename == __file__
            with pytest.warns(DeprecationWarning, match="use_stored_limits"):
                availability = await limiter.check_availability(
                    entity_id, "api", {"rpm": 1}, own, use_stored_limits=stored
                )
            assert availability.statuses[0].limit.capacity == capacity
            with pytest.warns(DeprecationWarning, match="use_stored_limits"):
                wait_s = await limiter.time_until_available(
                    entity_id, "api", {"rpm": 4}, own, use_stored_limits=stored
                )
            assert wait_s == (0 if capacity == 10 else math.inf)


async def test_a_limiter_has_names_of_old(any_url, monkeypatch):
    monkeypatch.setenv("ZAEL_URL", any_url)
    async with await Repository.open() as repository:
        for limiter in (RateLimiter(repository), RateLimiter()):
            for name in ("name", "stack_name", "table_name"):
                with pytest.warns(DeprecationWarning, match=f"RateLimiter.{name}") as warned:
                    assert getattr(limiter, name) == parse_url(any_url).place
                assert warned[0].filename == __file__
    monkeypatch.delenv("ZAEL_URL")
    with pytest.warns(DeprecationWarning, match="RateLimiter"):
        assert RateLimiter(name="prod").stack_name == "prod"


async def test_opening_is_a_context_manager(any_url):
    async with Repository.open(url=any_url) as repository:
        await repository.set_system_defaults(LIMITS)
    with pytest.raises(InfrastructureError, match="closed"):
        await repository.ping()


async def test_objects_say_what_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = Repository.__name__
    async with await Repository.open(url="sqlite:///limits.db") as repository:
        assert repr(repository) == f"{kind}(sqlite limits.db, namespace 'default')"
        limiter = RateLimiter(repository)
        assert repr(limiter) == f"{RateLimiter.__name__}({repository!r})"
        acquire = limiter.acquire("user-1", "gpt-4", {"rpm": 1}, LIMITS)
        assert repr(acquire) == "Acquire('user-1' on 'gpt-4', {'rpm': 1})"
        async with acquire as lease:
            await lease.adjust(rpm=2)
            assert repr(lease).endswith("Lease('user-1' on 'gpt-4', consumed {'rpm': 3})")
        assert repr(lease).endswith("consumed {'rpm': 3}, ended)")
    assert "on first use" in repr(RateLimiter())
    unnamed = await Repository.open(url="memory://")
    assert repr(unnamed) == f"{kind}(memory, namespace 'default')"
    builder = Repository.builder().url("memory://").request_timeout(3)
    assert repr(builder) == f"{kind}Builder(url='memory://', request_timeout=3)"


@pytest.mark.parametrize("kind", [HostClock, ServerClock])
def test_a_clock_shows_its_time_once_it_was_read(kind):
    clock = kind()
    clock()
    assert repr(clock).startswith(f"{kind.__name__}(1")
