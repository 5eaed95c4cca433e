"""Applies by the function that take longer than a network keeps an idle connection."""

import pytest

from tests.ops.stack.usage import calls_of, wait_until
from tests.support.dynamodb import Proxy
from zae_limiter import Limit, SyncRepository
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.stack import StackOptions
from zae_limiter_ops._async.infra.remote_provisioner import (
    RemoteProvisioner as AsyncRemoteProvisioner,
)
from zae_limiter_ops._sync.infra.remote_provisioner import CALL_S, RemoteProvisioner
from zae_limiter_ops._sync.provisioner.state_store import StateStore
from zae_limiter_ops.infra import names
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.problems import ApplyConflict

NAT_IDLE_S = 350  # NAT gateways and load balancers drop connections that are idle for longer


def manifest(resources, rpm=5):
    names_and_limits = {
        f"model-{number:04}": {"limits": {"rpm": rpm}} for number in range(resources)
    }
    return LimitsManifest.from_dict({"resources": names_and_limits})


@pytest.fixture
def deployed(deployment):
    deployment.deploy(StackOptions(enable_aggregator=False))
    return deployment


@pytest.fixture
def in_short_calls(deployed, place):
    """A provisioner whose calls have no time: each makes one batch of 48 changes."""
    remote = RemoteProvisioner(*place, principal="ci", call_seconds=0)
    yield remote
    remote.close()


def test_a_call_ends_before_a_network_drops_its_connection():
    batch_s, final_state_s = 15, 30
    assert CALL_S + batch_s + final_state_s < 300 < NAT_IDLE_S


def test_an_apply_of_many_batches_is_made_by_several_calls(deployed, in_short_calls, opening):
    plan = in_short_calls.plan(manifest(100))
    seen = []
    result = in_short_calls.apply(
        manifest(100),
        approved=plan["revision"],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert calls_of(deployed) == 1 + 3  # the plan, and an apply of 48, 48 and 4 changes
    assert seen == [(48, 100), (96, 100)]
    assert result == {
        "created": 100,
        "updated": 0,
        "deleted": 0,
        "adopted": 0,
        "unchanged": 0,
        "changes": plan["changes"],
    }
    assert in_short_calls.plan(manifest(100))["changes"] == []
    with SyncRepository.open(**opening) as repository:
        assert repository.get_resource_defaults("model-0099") == [Limit.per_minute("rpm", 5)]


async def test_the_async_provisioner_continues_as_well(deployed, place):
    remote = AsyncRemoteProvisioner(*place, call_seconds=0)
    assert (await remote.apply(manifest(60)))["created"] == 60
    assert (await remote.plan(manifest(60)))["changes"] == []
    await remote.close()


def test_an_apply_between_two_calls_is_a_conflict(in_short_calls, opening):
    """The approved plan of the first call no longer holds, so the second call changes nothing."""
    with SyncRepository.open(**opening) as repository:

        def interfere(done, total):
            repository.provisioner("bob").apply(manifest(1, rpm=7), allow_deletions=47)

        with pytest.raises(ApplyConflict, match="another apply was made since this plan"):
            in_short_calls.apply(manifest(100), progress=interfere)
        assert repository.get_resource_defaults("model-0000") == [Limit.per_minute("rpm", 7)]
        assert repository.get_resource_defaults("model-0099") == []


@pytest.mark.slow
def test_a_wait_for_another_apply_is_divided_as_well(in_short_calls, deployed, opening):
    with SyncRepository.open(**opening) as repository:
        in_short_calls.plan(manifest(1))  # a cold start may take as long as the lease
        context = repository.provisioner("bob")._context  # noqa: SLF001 - only applies take leases
        held = StateStore(context, "bob", lease_ms=5_000)
        held.read()
        held.take_lease(0)
        with pytest.raises(ApplyConflict, match="in progress, by bob"):
            in_short_calls.apply(manifest(1), wait_seconds=0)
        assert in_short_calls.apply(manifest(1), wait_seconds=60)["created"] == 1
        assert calls_of(deployed) > 3


@pytest.mark.slow
def test_an_apply_outlives_a_network_that_drops_idle_connections(deployed, place, control_plane):
    """A write of the function takes 0.8 s; the network drops a connection after 8 s of silence."""
    function = names.provisioner_function(deployed.name)
    control = deployed.manager.control
    with Proxy(control_plane.url) as table, Proxy(control_plane.url) as network:
        variables = {"TABLE_NAME": deployed.name, "AWS_ENDPOINT_URL": table.url}
        control.call(
            "lambda",
            "update_function_configuration",
            FunctionName=function,
            Environment={"Variables": variables},
        )
        table.link.slow_operation, table.link.answer_ms = "TransactWriteItems", 800
        network.link.idle_s = 8.0
        route = (*place[:2], network.url)
        whole = RemoteProvisioner(*route)
        with pytest.raises(InfrastructureError, match=r"^lambda cannot be reached"):
            whole.apply(manifest(48 * 16))
        whole.close()
        unhindered = RemoteProvisioner(*place)  # the function has gone on without its caller
        wait_until(lambda: unhindered.plan(manifest(48 * 16))["changes"] == [])
        unhindered.close()
        divided = RemoteProvisioner(*route, call_seconds=2)
        assert divided.apply(manifest(48 * 16, rpm=6), wait_seconds=30)["updated"] == 48 * 16
        assert divided.plan(manifest(48 * 16, rpm=6))["changes"] == []
        divided.close()
