"""The managed policies permit exactly the calls that are made, and no other namespace's keys."""

import inspect
import json

import pytest

from tests.integration.dynamodb.policies import workloads
from tests.integration.dynamodb.policies.exactness import faults, mutations
from tests.integration.dynamodb.sharding.world import World
from tests.support.dynamodb.recording import Recorded, recording
from tests.support.dynamodb.tables import store_url
from tests.support.dynamodb.trees import AsyncTree, SyncTree
from tests.support.policies import accesses
from tests.support.roles import ALL_METHODS, METHODS, beyond_policies
from zae_limiter import Repository
from zae_limiter.infra.statements import policy_documents

POLICIES = policy_documents()
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
    "pause",  # part of acquiring: a provider's refusal leads to it
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
    async with World(stack, endpoint, unique_name) as world:
        await workloads.prepare(world)
        yield world


async def recorded(world, proxy, role):
    """The rights that a role needs; a manager acquires and reads, too.

    An administrator of the whole table also manages namespaces, which a tenant may not.
    """
    with proxy.measure() as seen:
        if role != "read":
            await workloads.acquire(world, proxy)
        if role != "acq":
            await workloads.acquire(world, None)
            repo = await world.open(proxy, provision="never")
            await workloads.read(repo, world)
            if role == "full":
                await workloads.manage(repo, world)
    with proxy.measure() as seen_in_addition:
        if role == "full":
            await workloads.administer(repo, f"{world.namespace}-new")
    return needed(seen), needed(seen) | needed(seen_in_addition)


def needed(seen):
    """All rights that the requests need."""
    return {
        access
        for each in seen.requests
        for access in accesses(each.operation.partition(" of ")[0], each.body)
    }


@pytest.mark.parametrize("role", ["acq", "full", "read"])
async def test_a_policy_permits_just_what_is_called_in_its_own_namespace(world, proxy, role):
    of_tenant, of_all = await recorded(world, proxy, role)
    namespace_id = world.admin.namespace_id
    for policy, rights in ((f"ns-{role}", of_tenant), (role, of_all)):
        document = POLICIES[policy]
        assert faults(policy, document, rights, namespace_id) == []
        for mutant in mutations(document):
            assert faults(policy, mutant, rights, namespace_id), f"{policy} may be {mutant}"


async def test_every_method_is_part_of_a_workload(world, proxy, unique_name):
    repo = await world.open()
    await workloads.acquire(world, None)
    methods = {
        "read": await workloads.read(repo, world),
        "full": await workloads.manage(repo, world),
        "administrator": await workloads.administer(repo, f"{unique_name}-new"),
    }
    public = {
        name
        for name, _ in inspect.getmembers(Repository, inspect.isroutine)
        if not name.startswith("_")
    }
    assert public - ELSEWHERE == set().union(*methods.values())
    for role, names in methods.items():
        assert names == METHODS[role] - {"update_entity"}  # a method of the limiter


@pytest.mark.parametrize("tree", ["async", "sync"])
async def test_requests_are_recorded_with_the_method_that_makes_them(world, proxy, tree):
    """Of both trees: the check that accompanies every other test depends on it."""
    world.tree = AsyncTree() if tree == "async" else SyncTree()
    client = await world.client(proxy)
    calls = {
        "build": lambda: world.open(proxy),
        "acquire": lambda: client.take(rpm=1),
        "set_limits": lambda: client.repo.set_limits("user-9", [workloads.RPM], workloads.API),
        "list_entities": client.repo.list_entities,
    }
    for method, call in calls.items():
        with recording(ALL_METHODS) as recorder:
            await call()
        # What an acquire has left to the background may come with the next method.
        assert {each.methods - {"acquire"} for each in recorder.requests} <= {
            frozenset({method}) - {"acquire"},
            frozenset(),
        }
        assert any(method in each.methods for each in recorder.requests)


async def test_what_is_awaited_behind_another_object_is_recorded(world, proxy):
    """Python shows nothing of a coroutine that an ``__await__`` method has wrapped."""
    with recording(ALL_METHODS) as recorder:
        url = store_url(world.table, proxy.url)
        await (await Repository.open(world.namespace, url=url)).close()
    assert recorder.requests
    assert {each.methods for each in recorder.requests} == {frozenset({"build"})}


@pytest.mark.parametrize(
    ("method", "operation", "body", "policy"),
    [
        ("acquire", "Scan", {}, "ns-acq"),
        ("get_entity", "DeleteItem", {"Key": {"PK": {"S": "ns/x"}}}, "ns-read"),
        ("set_limits", "UpdateItem", {"Key": {"PK": {"S": "_/SYSTEM#"}}}, "ns-full"),
        ("build", "Scan", {}, "full"),
    ],
)
def test_a_call_beyond_the_policies_of_a_method_is_reported(method, operation, body, policy):
    request = Recorded(operation, json.dumps(body).encode(), frozenset({method}))
    reports = beyond_policies([request], POLICIES)
    assert reports
    assert reports[0].startswith(f"{method} calls Access(call='{operation}'")
    assert any(f"which {policy} does not permit" in report for report in reports)
