"""The managed policies permit exactly the calls that are made, and no other namespace's keys."""

import asyncio
import inspect
import json

import pytest

from tests.integration.dynamodb.policies import workloads
from tests.integration.dynamodb.policies.exactness import faults, mutations
from tests.integration.dynamodb.sharding.world import World
from tests.support.dynamodb.recording import Recorded, recording
from tests.support.dynamodb.seen import WRITES
from tests.support.dynamodb.tables import store_url
from tests.support.dynamodb.trees import AsyncTree, SyncTree
from tests.support.permissions import beyond_policies
from tests.support.policies import accesses
from tests.support.roles import METHODS
from zae_limiter import Repository
from zae_limiter_ops.infra.statements import policy_documents
from zae_limiter_ops.manifest import LimitsManifest

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


@pytest.mark.parametrize(
    ("role", "tree"),
    [
        ("acq", AsyncTree),
        ("acq", SyncTree),
        ("read", AsyncTree),
        ("read", SyncTree),
        ("full", AsyncTree),
    ],
)
async def test_a_policy_permits_just_what_is_called_in_its_own_namespace(world, proxy, role, tree):
    world.tree = tree()
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


async def test_requests_are_recorded_with_the_method_that_sends_them(world, proxy):
    """The check that accompanies every other test depends on it."""
    client = await world.client(proxy)
    calls = {
        "build": lambda: world.open(proxy),
        "acquire": lambda: client.take(rpm=1),
        "set_limits": lambda: client.repo.set_limits("user-9", [workloads.RPM], workloads.API),
        "list_entities": client.repo.list_entities,
        "provisioner": lambda: client.repo.provisioner().plan(LimitsManifest()),
    }
    for method, call in calls.items():
        with recording() as recorder:
            await call()
        assert {each.method for each in recorder.requests} == {method}


async def test_methods_that_are_under_way_together_are_told_apart(world, proxy):
    """Every request is slow, so all methods wait for an answer at the same time."""
    client = await world.client(proxy)
    proxy.link.request_ms = 20
    with recording() as recorder:
        await asyncio.gather(
            client.repo.list_entities(),
            client.repo.get_entity("child-1"),
            client.repo.set_limits("user-9", [workloads.RPM], workloads.API),
        )
    sent = {(each.method, each.operation) for each in recorder.requests}
    assert {"list_entities", "get_entity", "set_limits"} == {method for method, _ in sent}
    assert {method for method, operation in sent if operation == "Query"} == {"list_entities"}
    assert {method for method, operation in sent if operation in WRITES} == {"set_limits"}


async def test_tasks_and_callbacks_of_a_method_send_under_its_name(world, proxy):
    """An acquire that cascades writes buckets side by side, partly in callbacks of the loop."""
    client = await world.client(proxy)
    proxy.link.jitter_ms = 5
    with recording() as recorder:
        for _ in range(3):
            world.clock.advance(hours=1)  # usage is written in the background
            await client.take("child-1", rpm=1)
    assert len(recorder.requests) > 6
    assert {each.method for each in recorder.requests} == {"acquire"}


async def test_a_request_of_the_test_itself_has_no_method(world, proxy):
    """Neither has one of a task that the test creates."""
    repo = await world.open(proxy)
    engine = repo._context.engine  # noqa: SLF001 - below the API
    with recording() as recorder:
        await engine.ping()
        await asyncio.create_task(engine.ping())
        await asyncio.gather(engine.ping(), engine.ping())
    assert len(recorder.requests) == 4
    assert {each.method for each in recorder.requests} == {""}


async def test_what_is_awaited_behind_another_object_is_recorded(world, proxy):
    """What ``Repository.open`` returns is no coroutine: an ``__await__`` method wraps one."""
    with recording() as recorder:
        url = store_url(world.table, proxy.url)
        await (await Repository.open(world.namespace, url=url)).close()
    assert recorder.requests
    assert {each.method for each in recorder.requests} == {"build"}


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
    request = Recorded(operation, json.dumps(body).encode(), method)
    reports = beyond_policies([request], POLICIES)
    assert reports
    assert reports[0].startswith(f"{method} calls Access(call='{operation}'")
    assert any(f"which {policy} does not permit" in report for report in reports)
