"""The managed policies permit exactly the calls that are made, and no other namespace's keys."""

import copy
import inspect
import json

import pytest

from tests.integration.dynamodb.policies import workloads
from tests.integration.dynamodb.sharding.world import World
from tests.support.dynamodb.recording import Recorded, recording
from tests.support.dynamodb.trees import AsyncTree, SyncTree
from tests.support.policies import Access, accesses, allows, granted
from tests.support.roles import ALL_METHODS, METHODS, beyond_policies
from zae_limiter import Repository
from zae_limiter.infra.statements import OWN_KEYS, policy_documents

POLICIES = policy_documents()
OTHER = "zzzzzzzz"  # the id of another tenant's namespace
NEVER = ("Scan", "DeleteTable", "PartiQLSelect")
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


def faults(policy, document, rights, namespace_id):
    """What is wrong with a policy, given all rights that its role needs."""
    if policy in ("full", "read"):  # of get_status(); a tenant may not call it
        rights = {*rights, Access("DescribeTable", "table")}
    found = [f"refuses {each}" for each in rights if not allows(document, each, namespace_id)]
    called = {(each.call, each.resource != "table") for each in rights}
    if policy.startswith("ns-"):
        found += _reached(document, rights, namespace_id)
        # The registry is permitted apart from a tenant's own keys.
        parts = [_part(document, rights, registry=is_registry) for is_registry in (False, True)]
    else:
        parts = [(granted(document), called)]
    found += [f"permits {each}" for permitted, needed in parts for each in permitted - needed]
    return found


def _part(document, rights, *, registry):
    """What is permitted and needed on a tenant's own keys, or on those of the registry."""
    own = [each for each in document["Statement"] if (OWN_KEYS in str(each)) is not registry]
    needed = {
        (each.call, each.resource != "table")
        for each in rights
        if all(key.startswith("_/") for key in each.keys) is registry
    }
    return granted({"Statement": own}), needed


def _reached(document, rights, namespace_id):
    """Requests of the workload that a tenant could send to another namespace."""
    own = [each for each in rights if any(key.startswith(namespace_id) for key in each.keys)]
    assert own
    foreign = []
    for access in own:
        keys = frozenset(key.replace(namespace_id, OTHER, 1) for key in access.keys)
        foreign += [access._replace(keys=keys), access._replace(keys=access.keys | keys)]
    foreign += [Access(call, "table", frozenset({f"{OTHER}/x"})) for call in NEVER]
    writes = ("UpdateItem", "PutItem", "DeleteItem")
    foreign += [Access(call, "table", frozenset({"_/SYSTEM#"})) for call in writes]
    return [f"reaches {each}" for each in foreign if allows(document, each, namespace_id)]


def mutations(document):
    """The same policy with one call less, one more, another resource, or without its condition."""
    for number, statement in enumerate(document["Statement"]):
        changes = [("Action", [each]) for each in statement["Action"]]
        for action in statement["Action"]:
            rest = [each for each in statement["Action"] if each != action]
            changes.append(("Action", rest))
        changes += [("Action", [*statement["Action"], f"dynamodb:{call}"]) for call in NEVER]
        changes += [("Resource", [each]) for each in statement["Resource"]]
        changes.append(("Resource", [*statement["Resource"], "arn:aws:dynamodb:::table/t/index/*"]))
        for key, value in changes:
            if value != statement[key] and not _same(statement, key, value):
                mutant = copy.deepcopy(document)
                mutant["Statement"][number][key] = value
                yield mutant
        if "Condition" in statement:
            mutant = copy.deepcopy(document)
            del mutant["Statement"][number]["Condition"]
            yield mutant


def _same(statement, key, value):
    """Another ARN of indexes beside the one that is there permits nothing more."""
    return key == "Resource" and granted({"Statement": [statement]}) == granted(
        {"Statement": [{**statement, key: value}]}
    )


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


@pytest.mark.parametrize(
    ("method", "operation", "body", "policy"),
    [
        ("acquire", "Scan", {"Key": {"PK": {"S": "ns/x"}}}, "ns-acq"),
        ("get_entity", "DeleteItem", {"Key": {"PK": {"S": "ns/x"}}}, "ns-read"),
        ("set_limits", "UpdateItem", {"Key": {"PK": {"S": "_/SYSTEM#"}}}, "ns-full"),
        ("build", "Scan", {"Key": {"PK": {"S": "_/SYSTEM#"}}}, "full"),
    ],
)
def test_a_call_beyond_the_policies_of_a_method_is_reported(method, operation, body, policy):
    request = Recorded(operation, json.dumps(body).encode(), frozenset({method}))
    reports = beyond_policies([request], POLICIES)
    assert reports
    assert reports[0].startswith(f"{method} calls Access(call='{operation}'")
    assert any(f"which {policy} does not permit" in report for report in reports)
