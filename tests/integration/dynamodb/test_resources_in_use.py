"""The registry of resources in use: kept by the clients that create buckets, beside their work."""

import pytest

from tests.integration.dynamodb.ports.world import Raw
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter._async.engines.dynamodb.buckets import resources_in_use as module
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items.attributes import n
from zae_limiter.transport.calls import Deadline

LIMITS = [Limit.per_minute("rpm", 100)]
REGISTRY = keys.resources_in_use("ns-1")


@pytest.fixture
def stack(credentials, endpoint):
    with empty_table(endpoint) as name:
        yield name


@pytest.fixture
def raw(stack, endpoint, boto):
    return Raw(boto(endpoint), stack)


@pytest.fixture
async def registry(stack, proxy):
    """Of one process."""
    client = DynamoClient(stack, endpoint_url=proxy.url, request_timeout=2)
    yield module.ResourcesInUse(client)
    await client.close()


def add(registry, resource):
    return registry.add("ns-1", resource, Deadline(2))


def registered(raw):
    return {name: value for name, value in raw.get(REGISTRY).items() if name.startswith("r_")}


async def test_a_resource_is_written_once(registry, raw, proxy):
    with proxy.measure() as seen:
        for _ in range(3):
            await add(registry, "gpt-4")
    assert seen.operations == {"GetItem": 1, "UpdateItem of the registry": 1}
    assert registered(raw) == {"r_gpt-4": n(1)}
    assert raw.get(REGISTRY)["GSI4PK"]["S"].startswith("ns-1/ALL#")
    assert await registry.all("ns-1") == ["gpt-4"]
    assert await registry.all("ns-2") == []


async def test_another_process_only_reads_and_remembers_all(registry, stack, proxy):
    for resource in ("gpt-4", "gpt-5"):
        await add(registry, resource)
    client = DynamoClient(stack, endpoint_url=proxy.url, request_timeout=2)
    other = module.ResourcesInUse(client)
    with proxy.measure() as seen:
        for resource in ("gpt-4", "gpt-5", "gpt-4"):
            await add(other, resource)
    assert seen.operations == {"GetItem": 1}
    await client.close()


async def test_a_failure_is_ignored_and_not_repeated_at_once(registry, raw, proxy):
    with proxy.fault("deny"), proxy.measure() as seen:
        for _ in range(3):
            await add(registry, "gpt-4")  # no error, and no call for a while after the first
    assert seen.calls == 1
    assert raw.get(REGISTRY) is None


async def test_after_the_pause_it_is_registered(stack, raw, proxy):
    client = DynamoClient(stack, endpoint_url=proxy.url, request_timeout=2)
    registry = module.ResourcesInUse(client, retry_after_s=0)
    with proxy.fault("deny"):
        await add(registry, "gpt-4")
    await add(registry, "gpt-4")
    await client.close()
    assert registered(raw) == {"r_gpt-4": n(1)}


async def test_a_store_that_does_not_answer_is_not_waited_for_long(registry, proxy):
    deadline = Deadline(60)
    with proxy.fault("black_hole"):
        await registry.add("ns-1", "gpt-4", deadline)
    assert deadline.left() > 60 - 10


def test_an_acquire_is_granted_although_the_registry_cannot_be_written(stack, proxy, raw):
    def is_registry(exchange):
        return "#RESOURCES_IN_USE" in str(exchange.body.get("Key"))

    with SyncRepository.open(url=store_url(stack, proxy.url)) as repository:
        with proxy.fault("deny", when=is_registry) as fault:
            for entity_id in ("user-1", "user-2"):
                with SyncRateLimiter(repository).acquire(entity_id, "gpt-4", {"rpm": 1}, LIMITS):
                    pass
        assert fault.used == 1
        assert len(repository.get_resource_buckets("gpt-4")) == 2
        assert repository.list_resources() == []


def test_only_new_buckets_are_registered_not_every_acquire(stack, proxy):
    with SyncRepository.open(url=store_url(stack, proxy.url)) as repository:
        limiter = SyncRateLimiter(repository)
        for entity_id in ("user-1", "user-2"):
            with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}, LIMITS):
                pass
        with proxy.measure() as seen, limiter.acquire("user-1", "gpt-4", {"rpm": 1}, LIMITS):
            pass
        assert seen.operations == {"UpdateItem": 1}
        assert repository.list_resources() == ["gpt-4"]
        repository.delete_entity("user-1")
        repository.delete_entity("user-2")
        assert repository.list_resources() == ["gpt-4"]


def test_a_purge_takes_the_registry_with_it(stack, endpoint, raw):
    with SyncRepository.open("red", url=store_url(stack, endpoint)) as repository:
        with SyncRateLimiter(repository).acquire("user-1", "gpt-4", {"rpm": 1}, LIMITS):
            pass
        assert raw.get(keys.resources_in_use(repository.namespace_id)) is not None
        repository.delete_namespace("red")
        repository.purge_namespace(repository.namespace_id)
        assert raw.of(repository.namespace_id) == []
