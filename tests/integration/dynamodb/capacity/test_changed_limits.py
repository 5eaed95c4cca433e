"""Live buckets follow a change of configuration."""

import pytest

from tests.integration.dynamodb.capacity.world import API, RPM, TPM, USER
from zae_limiter import Limit

LARGER = [Limit.per_minute("rpm", 120), TPM]


@pytest.fixture
async def client(configured):
    client = await configured.client()
    await client.take(rpm=1, tpm=100)
    return client


async def test_a_change_by_others_is_seen_when_the_cache_is_too_old(
    configured, client, clock, cost_of
):
    await configured.admin.set_system_defaults(LARGER)
    with cost_of("acquire, warm"):
        await client.take(rpm=1)
    clock.advance(seconds=60)
    with cost_of("acquire, limits changed by another client"):
        await client.take(rpm=1)
    with cost_of("acquire, warm"):
        await client.take(rpm=1)


async def test_an_own_change_is_seen_at_once(client, cost_of):
    await client.repo.set_system_defaults(LARGER)
    with cost_of("acquire, limits changed by itself"):
        await client.take(rpm=1)
    with cost_of("acquire, warm"):
        await client.take(rpm=1)


async def test_a_bucket_that_others_have_changed_tells_of_it(configured, client, cost_of):
    await configured.admin.set_system_defaults(LARGER)
    await (await configured.client()).take(rpm=1)
    with cost_of("acquire, bucket re-based by another client"):
        await client.take(rpm=1)
    with cost_of("acquire, warm"):
        await client.take(rpm=1)


async def test_a_change_that_does_not_concern_the_bucket(configured, client, clock, cost_of):
    await configured.admin.set_resource_defaults("elsewhere", [RPM])
    clock.advance(seconds=60)
    with cost_of("acquire, cached configuration too old"):
        await client.take(rpm=1)


async def test_the_first_with_limits_of_its_own(client, cost_of):
    with cost_of("acquire, first with these `limits=`"):
        async with client.limiter.acquire(USER, API, {"rpm": 1}, [Limit.per_hour("rpm", 5)]):
            pass


async def test_a_bucket_that_was_forgotten(configured, client, clock, boto, endpoint, cost_of):
    table = boto(endpoint)
    [bucket] = [
        {"PK": item["PK"], "SK": item["SK"]}
        for item in table.scan(TableName=configured.table)["Items"]
        if "/BUCKET#" in item["PK"]["S"]
    ]
    table.delete_item(TableName=configured.table, Key=bucket)
    clock.advance(seconds=60)
    with cost_of("acquire, bucket expired meanwhile"):
        await client.take(rpm=1)
