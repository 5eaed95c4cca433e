"""From settings to a table, and every way that this can go wrong."""

import socket
import warnings

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.support.dynamodb.tables import store_url, temporary_table
from zae_limiter import (
    IncompatibleSchemaError,
    InfrastructureError,
    InfrastructureNotFoundError,
    Limit,
    PermissionDenied,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.items.version_record import SCHEMA_VERSION
from zae_limiter.testing import FakeClock

LIMITS = [Limit.per_minute("rpm", 10)]


@pytest.fixture
def stack():
    with temporary_table() as name:
        yield name


@pytest.fixture
def no_aws(monkeypatch, tmp_path):
    """A machine on which nobody has set up AWS."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_DEFAULT_REGION",
        "AWS_REGION",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_DYNAMODB",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


# --- what it warns of


def test_an_unsuited_mode_is_warned_of_once(stack, endpoint):
    """The engine and the repository run calls side by side, each by itself."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        url = store_url(stack, endpoint)
        SyncRepository.open(url=url, parallel_mode="gevent").close()
    assert [str(each.message).partition(" ")[0] for each in caught] == ["parallel_mode='gevent'"]


# --- where it is


def test_a_url_names_stack_and_endpoint(stack, endpoint):
    with SyncRepository.open(url=store_url(stack, endpoint)) as repository:
        assert repository.stack_name == stack
        assert repository.capabilities.engine == "dynamodb"
        assert repository.ping()


def test_so_do_settings(monkeypatch, stack, endpoint):
    monkeypatch.delenv("ZAEL_URL", raising=False)
    with SyncRepository.open(stack=stack, endpoint_url=endpoint, region="eu-west-1") as repository:
        assert repository.stack_name == stack


def test_so_does_the_environment(monkeypatch, stack, endpoint):
    monkeypatch.delenv("ZAEL_URL", raising=False)
    monkeypatch.setenv("ZAEL_STACK", stack)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
    with SyncRepository.open() as repository:
        assert repository.stack_name == stack


async def test_so_do_they_for_tasks(stack, endpoint):
    async with await Repository.open(url=store_url(stack, endpoint)) as repository:
        assert await repository.ping()


def test_a_local_server_needs_neither_region_nor_credentials(no_aws, stack, endpoint):
    with SyncRepository.open(url=store_url(stack, endpoint)) as repository:
        assert repository.ping()


@pytest.mark.parametrize("region", ["US East", "a.evil.example/", "", 5])
def test_a_region_is_a_name(region, endpoint):
    with pytest.raises(ValidationError) as caught:
        SyncRepository.open(stack="some-stack", region=region, endpoint_url=endpoint)
    assert caught.value.field == "region"


def test_an_endpoint_is_a_url():
    with pytest.raises(ValidationError) as caught:
        SyncRepository.open(stack="some-stack", endpoint_url="localhost:8000")
    assert caught.value.field == "endpoint_url"


# --- what is missing


def test_a_missing_table_is_not_made_unasked(endpoint, unique_name):
    with pytest.raises(InfrastructureNotFoundError) as caught:
        SyncRepository.open(stack=unique_name, endpoint_url=endpoint, provision="never")
    assert caught.value.stack_name == unique_name
    assert "provision='table'" in caught.value.hint
    assert "sqlite:///" in caught.value.hint


def test_where_there_are_no_stacks_the_table_is_made_alone(endpoint, unique_name, caplog):
    caplog.set_level("INFO", logger="zae_limiter")
    with SyncRepository.open(stack=unique_name, endpoint_url=endpoint) as repository:
        assert repository.get_version_record()["schema_version"] == SCHEMA_VERSION
        assert [namespace.name for namespace in repository.list_namespaces()] == ["default"]
        repository.delete_table()
    assert "has no CloudFormation: creating the table" in caplog.text


def test_without_aws_the_ways_out_are_named(no_aws, monkeypatch):
    monkeypatch.delenv("ZAEL_URL", raising=False)
    with pytest.raises(InfrastructureNotFoundError) as caught:
        SyncRepository.open()
    assert "AWS_REGION" in str(caught.value)
    assert "sqlite:///" in str(caught.value)


def test_without_credentials_the_ways_out_are_named(no_aws):
    with pytest.raises(PermissionDenied) as caught:
        SyncRepository.open(stack="some-stack", region="eu-west-1")
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)
    assert "sqlite:///" in str(caught.value)


def test_a_table_of_another_program_is_left_alone(table, endpoint):
    with pytest.raises(InfrastructureError, match="another stack"):
        SyncRepository.open(stack=table, endpoint_url=endpoint, provision="table")


def test_a_table_of_a_newer_version_is_not_touched(stack, endpoint):
    with SyncRepository.open(stack=stack, endpoint_url=endpoint) as repository:
        repository.set_version_record({"schema_version": 99})
    with pytest.raises(IncompatibleSchemaError):
        SyncRepository.open(stack=stack, endpoint_url=endpoint)


def test_opening_writes_the_version_down(stack, endpoint):
    with SyncRepository.open(stack=stack, endpoint_url=endpoint) as repository:
        assert repository.get_version_record()["schema_version"] == SCHEMA_VERSION


# --- who does not answer


def test_an_endpoint_without_a_server_is_unavailable_at_once(proxy):
    with proxy.refusing(), Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
        SyncRepository.open(stack="some-stack", endpoint_url=proxy.url, request_timeout=0.5)
    assert watch.within(0.5)


async def test_an_endpoint_that_does_not_answer_is_unavailable_in_time(proxy):
    silence = proxy.fault("black_hole")
    with silence, Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
        await Repository.open(
            stack="some-stack", endpoint_url=proxy.url, request_timeout=0.5, provision="table"
        )
    assert watch.within(0.5)


def test_an_endpoint_without_a_name_is_unavailable():
    with pytest.raises(RateLimiterUnavailable):
        SyncRepository.open(
            stack="some-stack", endpoint_url="http://nobody.invalid", request_timeout=2
        )


def test_a_caller_without_permission_to_read_the_table_is_told(proxy, stack):
    with proxy.fault("deny"), pytest.raises(PermissionDenied):
        SyncRepository.open(stack=stack, endpoint_url=proxy.url)


def test_a_failed_opening_leaves_no_connection_open(proxy, unique_name):
    with pytest.raises(InfrastructureNotFoundError):
        SyncRepository.open(stack=unique_name, endpoint_url=proxy.url, provision="never")
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2]))):
        pass  # the proxy is fine; unclosed sockets would be warned of


# --- time


def test_a_host_clock_that_is_off_is_corrected_by_the_servers(proxy, stack):
    """Two clients, one of which sees a server that is five minutes ahead."""
    with SyncRepository.open(stack=stack, endpoint_url=proxy.url) as repository:
        now_ms = repository.charging.clock()
    proxy.link.date_offset_s = 300
    with SyncRepository.open(stack=stack, endpoint_url=proxy.url) as repository:
        assert 298_000 <= repository.charging.clock() - now_ms <= 303_000


def test_a_clock_that_is_given_is_never_corrected(proxy, stack):
    clock = FakeClock()
    proxy.link.date_offset_s = 300
    with SyncRepository.open(stack=stack, endpoint_url=proxy.url, clock=clock) as repository:
        before = clock()
        limiter = SyncRateLimiter(repository)
        for _ in range(3):
            with limiter.acquire("user", "api", {"rpm": 1}, LIMITS):
                pass
        assert clock() == before
        assert limiter.available("user", "api", LIMITS) == {"rpm": 7}


# --- cost


def test_opening_a_table_that_exists_takes_two_reads(proxy, stack):
    SyncRepository.open(stack=stack, endpoint_url=proxy.url).close()
    with proxy.measure() as seen:
        SyncRepository.open(stack=stack, endpoint_url=proxy.url).close()
    assert seen.calls <= 2
    assert seen.wcu == 0


def test_a_ping_is_one_read(proxy, stack):
    repository = SyncRepository.open(stack=stack, endpoint_url=proxy.url)
    with repository, proxy.measure() as seen:
        repository.ping()
    assert (seen.operations, seen.rcu) == ({"GetItem": 1}, 1)
