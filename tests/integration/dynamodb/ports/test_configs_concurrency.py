"""Many change limits at once: every change is made, counted and logged, and none twice."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.dynamodb.ports import world
from tests.integration.dynamodb.ports.world import NS, delete_limits, limits, set_limits
from tests.support.dynamodb.waiting import PATIENT_S
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.registries import resource_count

MANY = 20


@pytest.fixture
async def ports(endpoint, table):
    """Patient ones: a busy machine takes a while to order so many writers."""
    ports = world.ports(table, endpoint, request_timeout=PATIENT_S)
    yield ports
    await ports.client.close()


@pytest.fixture
def sync_ports(endpoint, table):
    ports = world.sync_ports(table, endpoint, request_timeout=PATIENT_S)
    yield ports
    ports.client.close()


async def put(ports, entity_id, resource, config):
    await set_limits(ports.configs, (entity_id, resource), config)


async def delete(ports, entity_id, resource):
    return (await delete_limits(ports.configs, (entity_id, resource))).is_changed


async def version(ports):
    return (await ports.configs.snapshot(NS, "anybody", "api", fresh=True)).version


async def test_limits_of_many_entities_are_set_at_once(ports, raw):
    await asyncio.gather(*(put(ports, f"user-{i}", "api", limits(i + 1)) for i in range(MANY)))
    assert await version(ports) == MANY
    assert resource_count(raw.get(keys.entity_config_resources(NS)), "api") == MANY
    for i in range(MANY):
        assert await ports.configs.get(NS, f"user-{i}", "api") == limits(i + 1)
        assert len(await ports.audit.events(NS, f"user-{i}", None, 10)) == 1


async def test_the_same_level_is_set_by_many_at_once(ports, raw, endpoint):
    others = world.ports(ports.client.table, endpoint, request_timeout=PATIENT_S)
    writers = [put(random.choice((ports, others)), "user", "api", limits(i)) for i in range(1, 21)]
    await asyncio.gather(*writers)
    assert await version(ports) == MANY
    assert resource_count(raw.get(keys.entity_config_resources(NS)), "api") == 1
    events = await ports.audit.events(NS, "user", None, 100)
    assert len(events) == MANY
    await _assert_one_chain(ports, events)
    await others.client.close()


async def _assert_one_chain(ports, events):
    """Each change saw what exactly one other change had written, and one saw nothing."""
    written = {event.details["limits"][0]["capacity"] for event in events}
    seen = [event.details["previous"] for event in events]
    capacities = [each["limits"][0]["capacity"] for each in seen if each is not None]
    assert len(written) == MANY
    assert len(set(capacities)) == len(capacities) == MANY - 1
    (last,) = written - set(capacities)
    assert await ports.configs.get(NS, "user", "api") == limits(last)


async def test_setting_and_deleting_at_once_leaves_counts_that_are_right(ports, raw):
    async def change(number):
        entity = f"user-{number % 4}"
        if number % 3:
            await put(ports, entity, "api", limits(number + 1))
            return 1
        return await delete(ports, entity, "api")

    changes = sum(await asyncio.gather(*(change(number) for number in range(60))))
    left = await ports.configs.configured_entities(NS, "api", "", None)
    registry = raw.get(keys.entity_config_resources(NS))
    assert resource_count(registry, "api") == len(left)
    assert await version(ports) == changes
    for entity in left:
        assert await ports.configs.get(NS, entity, "api") is not None


async def test_of_many_deletions_one_succeeds(ports):
    await put(ports, "user", "api", limits(1))
    found = await asyncio.gather(*(delete(ports, "user", "api") for _ in range(MANY)))
    assert sum(found) == 1
    assert await version(ports) == 2
    assert await ports.configs.resources_with_entity_configs(NS) == []


async def test_the_system_and_others_are_set_at_once(ports):
    await asyncio.gather(
        *(put(ports, "", "", limits(i + 1)) for i in range(10)),
        *(put(ports, f"user-{i}", "api", limits(1)) for i in range(10)),
    )
    assert await version(ports) == 20
    assert len(await ports.audit.events(NS, "$SYSTEM", None, 100)) == 10


async def test_changes_that_meet_on_a_store_that_refuses_conflicts_are_all_made(proxied, proxy):
    conflicts = proxy.fault(
        "throttle",
        operation="TransactWriteItems",
        times=30,
        when=lambda exchange: random.random() < 0.7,
        code="TransactionConflictException",
    )
    with conflicts:
        await asyncio.gather(*(put(proxied, f"u-{i}", "api", limits(1)) for i in range(MANY)))
    assert conflicts.used > 0
    assert await version(proxied) == MANY


async def test_conflicts_without_end_are_given_up_on(ports, proxy):
    hurried = world.ports(ports.client.table, proxy.url, request_timeout=0.3)
    with (
        proxy.fault(
            "throttle", operation="TransactWriteItems", code="TransactionConflictException"
        ),
        pytest.raises(RateLimiterUnavailable, match=r"other writers keep changing|no time left"),
    ):
        await asyncio.wait_for(put(hurried, "user", "api", limits(1)), 20)
    assert await version(ports) == 0
    await hurried.client.close()


def test_threads_set_limits_at_once(sync_ports):
    def write(number):
        set_limits(sync_ports.configs, (f"user-{number % 5}", "api"), limits(number + 1))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(40)))
    found = sync_ports.configs.snapshot(NS, "user-0", "api", fresh=True)
    assert found.version == 40
    assert sync_ports.configs.configured_entities(NS, "api", "", None) == [
        f"user-{number}" for number in range(5)
    ]
