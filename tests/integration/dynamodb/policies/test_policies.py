"""The managed policies permit exactly the calls that are made, and no other namespace's keys."""

import inspect

import pytest

from tests.integration.dynamodb.policies import workloads
from tests.integration.dynamodb.sharding.world import World
from tests.support.policies import Access, accesses, allows, granted
from zae_limiter import Repository
from zae_limiter.infra.statements import policy_documents

POLICIES = policy_documents()
OTHER = "zzzzzzzz"  # the id of another tenant's namespace
# Local, deprecated or about infrastructure: they call no table, or need an administrator's rights
# on the account.
ELSEWHERE = {
    "builder",
    "close",
    "create_stack",
    "create_table",
    "delete_stack",
    "delete_table",
    "ensure_infrastructure",
    "get_cache_stats",
    "get_stats",
    "get_status",
    "invalidate_config_cache",
    "namespace",
    "open",
    "over",
    "with_settings",
}


@pytest.fixture
async def world(endpoint, stack, unique_name):
    world = World(stack, endpoint, unique_name)
    await world.begin()
    await workloads.prepare(world)
    yield world
    await world.close()


def needed(seen):
    """All rights that the requests need."""
    return {
        access
        for each in seen.requests
        for access in accesses(each.operation.partition(" of ")[0], each.body)
    }


async def recorded(world, proxy, role):
    """The rights that a role needs, and its tag."""
    with proxy.measure() as seen:
        if role == "acq":
            await workloads.acquire(world, proxy)
        else:
            await workloads.acquire(world, None)
            repo = await world.open(proxy, provision="never")
            await workloads.read(repo, world)
            if role == "full":
                await workloads.manage(repo, world)
            await repo.close()
    return needed(seen), world.admin.namespace_id


@pytest.mark.parametrize("role", ["acq", "full", "read"])
async def test_a_policy_permits_just_what_is_called(world, proxy, role):
    rights = set()
    if role == "full":  # a manager acquires, too
        rights, _ = await recorded(world, proxy, "acq")
    more, namespace_id = await recorded(world, proxy, role)
    rights |= more
    for policy in (role, f"ns-{role}"):
        missing = [each for each in rights if not allows(POLICIES[policy], each, namespace_id)]
        assert not missing, f"{policy} refuses what is called: {missing[:3]}"
    called = {(each.call, each.resource != "table") for each in rights}
    if role != "acq":
        called.add(("DescribeTable", False))  # of get_status()
    assert granted(POLICIES[role]) == called
    called -= {("DescribeTable", False)}  # a tenant may not see how large the table is
    assert granted({"Statement": of_own_keys(f"ns-{role}")}) == called


def of_own_keys(policy):
    return [each for each in POLICIES[policy]["Statement"] if each["Sid"] != "Registry"]


@pytest.mark.parametrize("role", ["acq", "full", "read"])
async def test_a_tenant_reaches_no_other_namespace(world, proxy, role):
    rights, namespace_id = await recorded(world, proxy, role)
    document = POLICIES[f"ns-{role}"]
    own = [each for each in rights if any(key.startswith(namespace_id) for key in each.keys)]
    assert own
    for access in own:
        keys = {key.replace(namespace_id, OTHER, 1) for key in access.keys}
        for foreign in (frozenset(keys), access.keys | keys):
            assert not allows(document, access._replace(keys=foreign), namespace_id)
    for call in ("Scan", "BatchWriteItem", "DeleteTable", "PartiQLSelect"):
        assert not allows(document, Access(call, "table", frozenset({f"{OTHER}/x"})), namespace_id)
    for call in ("UpdateItem", "PutItem", "DeleteItem"):
        registry = Access(call, "table", frozenset({"_/SYSTEM#"}))
        assert not allows(document, registry, namespace_id), "the registry is only read"


async def test_every_method_is_part_of_a_workload(world, proxy, unique_name):
    repo = await world.open()
    await workloads.acquire(world, None)
    methods = await workloads.read(repo, world) | await workloads.manage(repo, world)
    methods |= await workloads.administer(repo, f"{unique_name}-new")
    public = {
        name
        for name, _ in inspect.getmembers(Repository, inspect.isroutine)
        if not name.startswith("_")
    }
    assert public - ELSEWHERE == methods


def test_a_call_too_many_or_too_few_is_seen():
    access = Access("UpdateItem", "table", frozenset({"ns/BUCKET#a#api#0"}))
    assert allows(POLICIES["ns-acq"], access, "ns")
    assert not allows(POLICIES["ns-acq"], access, "other")
    assert not allows(POLICIES["read"], access)
    assert not allows(POLICIES["acq"], access._replace(call="Scan"))
    assert allows(POLICIES["ns-read"], Access("GetItem", "table", frozenset({"_/SYSTEM#"})), "ns")
    assert allows(POLICIES["ns-read"], Access("Query", "GSI2", frozenset({"ns/x"})), "ns")
    assert not allows(POLICIES["ns-read"], Access("Query", "GSI2", frozenset({"_/x"})), "ns")
