"""The registry of resources in use: kept by the clients that create buckets, beside their work."""

import asyncio

import pytest

from tests.integration.dynamodb.ports.world import Raw
from tests.support.dynamodb.tables import empty_table, store_url
from tests.support.dynamodb.world import written_later
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.store import DynamoStore
from zae_limiter._async.engines.items.buckets import resources_in_use as module
from zae_limiter._async.engines.items.later_writes import LaterWrites
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import n
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.testing import FakeClock

LIMITS = [Limit.per_minute("rpm", 100)]
REGISTRY = keys.resources_in_use("ns-1")


@pytest.fixture
def stack(credentials, endpoint):
    with empty_table(endpoint) as name:
        yield name


@pytest.fixture
def raw(stack, endpoint, boto):
    return Raw(boto(endpoint), stack)


class Process:
    """One client with its registry; what it registers is written when ``add`` returns."""

    def __init__(self, stack, url, retry_after_s=60.0):
        self.client = DynamoClient(stack, endpoint_url=url, request_timeout=2)
        parallel = Parallel("serial")
        store = DynamoStore(self.client, parallel)
        self.later = LaterWrites(store, parallel, retry_after_s)
        self.registry = module.ResourcesInUse(store, self.later)
        self.all = self.registry.all

    async def add(self, resource):
        self.registry.add("ns-1", resource)
        await self.later.drain(10)

    async def close(self):
        await self.later.close()
        await self.client.close()


@pytest.fixture
async def process(stack, proxy):
    process = Process(stack, proxy.url)
    yield process
    await process.close()


def registered(raw):
    return {name: value for name, value in raw.get(REGISTRY).items() if name.startswith("r_")}


async def test_a_resource_is_written_once(process, raw, proxy):
    with proxy.measure() as seen:
        for _ in range(3):
            await process.add("gpt-4")
    assert seen.operations == {"GetItem": 1, "UpdateItem of the registry": 1}
    assert registered(raw) == {"r_gpt-4": n(1)}
    assert raw.get(REGISTRY)["GSI4PK"]["S"].startswith("ns-1/ALL#")
    assert await process.all("ns-1") == ["gpt-4"]
    assert await process.all("ns-2") == []


async def test_another_process_only_reads_and_remembers_all(process, stack, proxy):
    for resource in ("gpt-4", "gpt-5"):
        await process.add(resource)
    other = Process(stack, proxy.url)
    with proxy.measure() as seen:
        for resource in ("gpt-4", "gpt-5", "gpt-4"):
            await other.add(resource)
    assert seen.operations == {"GetItem": 1}
    await other.close()


async def test_a_failure_is_not_repeated_at_once_but_when_the_client_is_closed(stack, raw, proxy):
    process = Process(stack, proxy.url)
    with proxy.fault("deny"), proxy.measure() as seen:
        await process.add("gpt-4")  # no error, and no call for a while after it
        process.later.retry()
        await process.later.drain(10)
    assert seen.calls == 1
    assert raw.get(REGISTRY) is None
    await process.close()
    assert registered(raw) == {"r_gpt-4": n(1)}


async def test_after_the_pause_it_is_registered(stack, raw, proxy):
    process = Process(stack, proxy.url, retry_after_s=0)
    with proxy.fault("deny", times=1):
        await process.add("gpt-4")
        await process.later.drain(10)
    assert registered(raw) == {"r_gpt-4": n(1)}
    await process.close()


async def test_what_is_refused_every_time_is_given_up(stack, proxy):
    process = Process(stack, proxy.url, retry_after_s=0)
    with proxy.fault("deny"), proxy.measure() as seen:
        for _ in range(10):
            await process.add("gpt-4") if not seen.calls else await process.later.drain(10)
    assert seen.calls == 5
    await process.close()


async def test_a_write_that_was_cancelled_with_its_loop_is_made_up_for(process, raw, proxy):
    with proxy.fault("black_hole", times=1):
        process.registry.add("ns-1", "gpt-4")
        await process.later.drain(0.05)
        [task] = asyncio.all_tasks() - {asyncio.current_task()}
        task.cancel()  # as `asyncio.run` does with what is left
        await asyncio.wait([task])
    await process.later.close()
    assert registered(raw) == {"r_gpt-4": n(1)}


def is_registry(exchange):
    return "#RESOURCES_IN_USE" in str(exchange.body.get("Key"))


def test_an_acquire_is_granted_although_the_registry_cannot_be_written(stack, proxy, raw):
    with SyncRepository.open(url=store_url(stack, proxy.url)) as repository:
        with proxy.fault("deny", when=is_registry) as fault:
            for entity_id in ("user-1", "user-2"):
                with SyncRateLimiter(repository).acquire(entity_id, "gpt-4", {"rpm": 1}, LIMITS):
                    pass
            repository._context.engine._context.later.drain(10)  # noqa: SLF001 - below the API
        assert fault.used >= 1
        assert repository.list_resources() == []
        assert len(repository.get_resource_buckets("gpt-4")) == 2
    with SyncRepository.open(url=store_url(stack, proxy.url)) as repository:
        assert repository.list_resources() == ["gpt-4"]  # made up for when it was closed


async def test_a_registration_that_was_lost_is_made_up_for_on_the_next_day(stack, proxy):
    """The process that created the only bucket is killed before it could register the resource."""
    clock = FakeClock()

    def opened():
        return Repository.builder().url(store_url(stack, proxy.url)).clock(clock).build()

    killed, other = await opened(), await opened()
    with proxy.fault("deny", when=is_registry):
        async with RateLimiter(killed).acquire("user-1", "gpt-4", {"rpm": 1}, LIMITS):
            pass
        await written_later(killed)
    assert await other.list_resources() == []
    clock.advance(days=1)
    async with RateLimiter(other).acquire("user-1", "gpt-4", {"rpm": 1}, LIMITS):
        pass
    assert await other.list_resources() == ["gpt-4"]
    for repo in (other, killed):
        await repo.close()


def test_only_new_buckets_are_registered_not_every_acquire(stack, proxy):
    with SyncRepository.open(url=store_url(stack, proxy.url)) as repository:
        limiter = SyncRateLimiter(repository)
        for entity_id in ("user-1", "user-2"):
            with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}, LIMITS):
                pass
        repository.list_resources()  # waits for what is under way
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
        repository.list_resources()  # waits for what is under way
        assert raw.get(keys.resources_in_use(repository.namespace_id)) is not None
        repository.delete_namespace("red")
        repository.purge_namespace(repository.namespace_id)
        assert raw.of(repository.namespace_id) == []
