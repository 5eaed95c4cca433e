"""What looking and managing cost. Lists are short here, and one page."""

import pytest

from tests.integration.dynamodb.capacity.world import API, PARENT, RPM, TPM, USER
from zae_limiter import Repository

SLOW_IN_SYNC_TREE = True  # the same calls

LIMITS = [RPM, TPM]


@pytest.fixture
async def client(family):
    """A child with its parent, limits at every level, and buckets."""
    await family.admin.set_resource_defaults(API, LIMITS)
    await family.admin.set_limits(USER, LIMITS, API)
    client = await family.client()
    await client.take(rpm=1, tpm=100)
    return client


@pytest.fixture
async def other(family):
    """Has changed nothing and read nothing."""
    return await family.client()


# --- questions


async def test_available(configured, cost_of):
    client = await configured.client()
    await client.take(rpm=1)
    with cost_of("`available`, warm"):
        await client.limiter.available(USER, API)
    with cost_of("`check_availability`, warm"):
        await client.limiter.check_availability(USER, API, {"rpm": 1})
    with cost_of("`time_until_available`, warm"):
        await client.limiter.time_until_available(USER, API, {"rpm": 1})


async def test_available_of_a_cascading_entity(client, cost_of):
    with cost_of("`available`, warm, cascading"):
        await client.limiter.available(USER, API)


async def test_available_with_nothing_cached(client, other, cost_of):
    with cost_of("`available`, nothing cached"):
        await other.limiter.available(PARENT, API)


async def test_whether_the_store_answers(client, cost_of):
    with cost_of("`is_available`"):
        assert await client.limiter.is_available(30)


# --- limits


async def test_system_defaults(client, cost_of):
    repo = client.repo
    with cost_of("`set_system_defaults`"):
        await repo.set_system_defaults([RPM])
    with cost_of("`get_system_defaults`"):
        await repo.get_system_defaults()
    with cost_of("`delete_system_defaults`"):
        await repo.delete_system_defaults()


async def test_resource_defaults(client, cost_of):
    repo = client.repo
    with cost_of("`set_resource_defaults`, new"):
        await repo.set_resource_defaults("other", LIMITS)
    with cost_of("`set_resource_defaults`, replaced"):
        await repo.set_resource_defaults("other", [RPM])
    with cost_of("`get_resource_defaults`"):
        await repo.get_resource_defaults("other")
    with cost_of("`list_resources_with_defaults`"):
        assert await repo.list_resources_with_defaults() == [API, "other"]
    with cost_of("`delete_resource_defaults`"):
        await repo.delete_resource_defaults("other")


async def test_limits_of_an_entity(client, cost_of):
    repo = client.repo
    with cost_of("`set_limits`, new"):
        await repo.set_limits(USER, LIMITS, "other")
    with cost_of("`set_limits`, replaced"):
        await repo.set_limits(USER, [RPM], "other")
    await repo.set_limits(USER, [RPM], "other")
    with cost_of("`set_limits`, unchanged"):
        await repo.set_limits(USER, LIMITS, "other", if_missing=True)
    with cost_of("`get_limits`"):
        await repo.get_limits(USER, "other")
    with cost_of("`list_entities_with_custom_limits`"):
        assert await repo.list_entities_with_custom_limits("other") == ([USER], None)
    with cost_of("`list_resources_with_entity_configs`"):
        assert await repo.list_resources_with_entity_configs() == [API, "other"]
    with cost_of("`delete_limits`"):
        await repo.delete_limits(USER, "other")


async def test_which_limits_apply(client, other, cost_of):
    with cost_of("`resolve_limits`, warm"):
        await client.repo.resolve_limits(USER, API)
    with cost_of("`resolve_limits`, nothing cached"):
        await other.repo.resolve_limits(USER, API)


# --- entities


async def test_entities(client, cost_of):
    repo = client.repo
    with cost_of("`create_entity`"):
        await repo.create_entity("user-2")
    with cost_of("`create_entity` with a parent"):
        await repo.create_entity("user-3", parent_id=PARENT)
    with cost_of("`get_entity`"):
        await repo.get_entity("user-2")
    with cost_of("`get_children`"):
        assert len(await repo.get_children(PARENT)) == 2
    with cost_of("`delete_entity`, nothing but the entity"):
        await repo.delete_entity("user-2")
    with cost_of("`delete_entity` with a parent, 1 configuration and 1 bucket"):
        await repo.delete_entity(USER)


# --- buckets


async def test_looking_at_buckets(client, cost_of):
    repo = client.repo
    with cost_of("`get_bucket`"):
        await repo.get_bucket(USER, API, "rpm")
    with cost_of("`get_buckets` of an entity on a resource"):
        await repo.get_buckets(USER, API)
    with cost_of("`get_buckets` of an entity, 1 bucket"):
        assert len(await repo.get_buckets(USER)) == 2
    with cost_of("`get_resource_buckets`, 2 buckets"):
        assert len(await repo.get_resource_buckets(API)) == 4
    with cost_of("`list_buckets` of a resource, 2 buckets"):
        assert len((await repo.list_buckets(resource=API))[0]) == 4
    with cost_of("`list_buckets` of the namespace, 2 buckets"):
        assert len((await repo.list_buckets())[0]) == 4
    with cost_of("`get_resource_capacity`, 2 buckets"):
        await repo.get_resource_capacity(API, "rpm")
    with cost_of("`get_resource_capacity` of parents, 2 buckets"):
        await repo.get_resource_capacity(API, "rpm", parents_only=True)


async def test_mending_buckets(client, cost_of):
    with cost_of("`top_up`"):
        await client.repo.top_up(USER, API, {"rpm": 1})
    with cost_of("`reset_bucket`"):
        await client.repo.reset_bucket(USER, API)
    with cost_of("`pause`"):
        await client.repo.pause(USER, API, 30)


# --- the rest


async def test_audit(client, cost_of):
    with cost_of("`get_audit_events`"):
        assert await client.repo.get_audit_events(USER)


async def test_opening(family, client, proxy, cost_of):
    with cost_of("`Repository.open`, table exists"):
        await family.open(proxy)


async def test_opening_a_new_table(stack, proxy, cost_of):
    with cost_of("`Repository.open`, table is empty"):
        await (await Repository.open(stack=stack, endpoint_url=proxy.url)).close()


async def test_namespaces(client, cost_of):
    repo = client.repo
    with cost_of("`register_namespace`"):
        namespace_id = await repo.register_namespace("red")
    with cost_of("`list_namespaces`"):
        await repo.list_namespaces()
    with cost_of("`get_namespace`"):
        await repo.get_namespace("red")
    with cost_of("`delete_namespace`"):
        await repo.delete_namespace("red")
    with cost_of("`recover_namespace`"):
        await repo.recover_namespace(namespace_id)
    await repo.delete_namespace("red")
    with cost_of("`purge_namespace`, empty"):
        await repo.purge_namespace(namespace_id)
