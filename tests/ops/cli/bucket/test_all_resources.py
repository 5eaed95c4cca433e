"""``bucket pause`` and ``bucket reset`` with ``--all-resources``."""

import re

import pytest

from tests.ops.cli.stores import dynamodb_first, on_dynamodb
from tests.support.dynamodb.shared import shared_proxy
from tests.support.dynamodb.tables import store_url
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.store_url import parse_url

RESOURCES = ("gpt-4", "gpt-5", "o-1")
ALL = "--all-resources"
WRITES = ("UpdateItem", "PutItem", "TransactWriteItems")


@pytest.fixture
def used(opened):
    """Buckets of key-7 on two resources, one of another entity on a third; yield a limiter."""
    limiter = SyncRateLimiter(opened)
    for entity_id, resource in (("key-7", "gpt-5"), ("other", "o-1")):
        with limiter.acquire(entity_id, resource, {"rpm": 10}, [Limit.per_day("rpm", 10)]):
            pass
    opened.list_resources()  # waits for the registration of both, which goes on in the background
    return limiter


def is_changed(state):
    return state.paused_until_ms is not None or state.tokens == state.capacity


def is_refused(limiter, resource):
    try:
        with limiter.acquire("key-7", resource, {"rpm": 1}):
            return False
    except RateLimitExceeded:
        return True


@dynamodb_first
def test_a_pause_on_all_resources_stops_an_entity_everywhere(cli, used):
    found = cli("bucket", "pause", "key-7", "300", ALL, "--principal", "ops")
    assert found.code == 0
    for resource in RESOURCES:
        assert f"paused on {resource} until 20" in found.out
        assert is_refused(used, resource)
    with used.acquire("other", "gpt-4", {"rpm": 1}):
        pass
    lifted = cli("bucket", "pause", "key-7", "0", ALL, "--output", "json").json["buckets"]
    assert {bucket["resource"] for bucket in lifted} == set(RESOURCES)
    assert {bucket["paused_until"] for bucket in lifted} == {None}
    for resource in ("gpt-5", "o-1"):
        assert "paused" not in cli("explain", "key-7", resource).out


@on_dynamodb
def test_a_pause_on_all_resources_finds_a_bucket_whose_resource_is_not_registered_yet(
    cli, url, opened
):
    """The registration is on its way, or was lost with the process that had to make it."""

    def is_registry(exchange):
        return "#RESOURCES_IN_USE" in str(exchange.body.get("Key"))

    proxied = store_url(parse_url(url).place, shared_proxy().url)
    with (
        shared_proxy().fault("deny", when=is_registry) as lost,
        SyncRepository.open(url=proxied) as repository,
    ):
        limits = [Limit.per_day("rpm", 10)]
        with SyncRateLimiter(repository).acquire("key-7", "o-1", {"rpm": 1}, limits):
            pass
        repository._context.engine._context.later.drain(10)  # noqa: SLF001 - below the API
        assert lost.used
        assert "o-1" not in opened.list_resources()
        assert "paused on o-1 until 20" in cli("bucket", "pause", "key-7", "300", ALL).out


@dynamodb_first
def test_a_reset_on_all_resources_fills_every_bucket(cli, used, opened):
    question = cli("bucket", "reset", "key-7", ALL).error(2)
    assert re.search(r"on 2 resources \(gpt-4: rpm from 7\S* to 10, tpm from -", question)
    assert re.search(r"; gpt-5: rpm from 0\S* to 10", question)
    found = cli("bucket", "reset", "key-7", ALL, "--yes", "--principal", "ops", "--output", "json")
    assert {bucket["resource"] for bucket in found.json["buckets"]} == {"gpt-4", "gpt-5"}
    for state in opened.get_buckets("key-7"):
        assert state.tokens == state.capacity
    assert opened.get_bucket("other", "o-1", "rpm").tokens < 10
    events = opened.get_audit_events("key-7", 2)
    assert {(event.action, event.principal, event.resource) for event in events} == {
        ("bucket_reset", "ops", "gpt-4"),
        ("bucket_reset", "ops", "gpt-5"),
    }


@on_dynamodb
@pytest.mark.parametrize("command", [["pause", "key-7", "60", ALL], ["reset", "key-7", ALL, "-y"]])
@pytest.mark.usefixtures("used")
def test_a_change_that_fails_halfway_says_how_far_it_came(cli, url, opened, command):
    def is_second_write(exchange):
        return exchange.operation in WRITES and b"gpt-5" in exchange.raw_body

    proxy = shared_proxy()
    stack = parse_url(url).place
    with proxy.fault("deny", when=is_second_write):
        line = cli("bucket", *command, "--url", store_url(stack, proxy.url)).error(1)
    assert "done before the failure: gpt-4; not done: gpt-5" in line
    assert "run the command again" in line
    changed = {event.resource for event in opened.get_audit_events("key-7") if event.resource}
    assert "gpt-4" in changed
    assert "gpt-5" not in {
        state.resource for state in opened.get_buckets("key-7") if is_changed(state)
    }


@dynamodb_first
def test_a_pause_that_finds_no_resource_is_no_success(cli):
    cli("namespace", "register", "empty")
    said = cli("bucket", "pause", "key-7", "60", ALL, "-N", "empty").error(1)
    assert "nothing was paused" in said
    cli("system", "set-defaults", "-l", "rpm:60", "-N", "empty")
    assert cli("bucket", "pause", "key-7", "60", "gpt-4", "-N", "empty").code == 2
    assert "paused on gpt-4" in cli("bucket", "pause", "key-7", "gpt-4", "60", "-N", "empty").out


@dynamodb_first
def test_a_reset_of_an_entity_without_buckets_is_refused(cli):
    assert "has no buckets" in cli("bucket", "reset", "key-8", ALL, "--yes").error(1)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["reset", "key-7", "gpt-4", ALL], "leave out RESOURCE"),
        (["pause", "key-7", "gpt-4", "30", ALL], "leave out RESOURCE"),
        (["reset", "key-7"], "give RESOURCE, or --all-resources"),
        (["pause", "key-7", "30"], "give RESOURCE and SECONDS, or --all-resources and SECONDS"),
        (["pause", "key-7", ALL], "give SECONDS"),
        (["pause", "key-7", "soon", ALL], "'soon' is not a number of seconds"),
        (["pause", "key-7", "601", ALL], "601 is not between 0 and 600"),
    ],
)
def test_a_resource_and_all_resources_contradict_each_other(cli, args, said):
    assert said in cli("bucket", *args).error(2)
