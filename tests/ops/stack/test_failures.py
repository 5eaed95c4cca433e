"""Deployments that fail, are killed, run at the same time, or lack permissions."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.ops.cli.terminal import environment
from tests.ops.infra.test_deployer_rights import documented as documented_rights
from tests.ops.stack.custom import with_custom_resource
from tests.ops.stack.usage import (
    bucket_item,
    is_cleared,
    use_and_turn_the_hour,
    wait_until,
)
from tests.support.dynamodb import Proxy
from tests.support.ministack import REGION, Ministack
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.exceptions import InfrastructureError, PermissionDenied, StackOperationError
from zae_limiter.models.stack import StackOptions
from zae_limiter_ops._sync.infra.deployment import Deployment, functions
from zae_limiter_ops._sync.infra.remote_provisioner import RemoteProvisioner
from zae_limiter_ops.infra import names, packages
from zae_limiter_ops.manifest.declarations import LimitsManifest

LIMITS = [Limit.per_minute("rpm", 10)]
FAILING = with_custom_resource(status="FAILED")


def deploying(place, **more):
    deployment = Deployment(*place, **more)
    try:
        return deployment.deploy(StackOptions())
    finally:
        deployment.close()


def test_a_failed_update_is_rolled_back_and_explained(place, deployment, opening):
    deployment.deploy(StackOptions())
    use_and_turn_the_hour(opening)
    with pytest.raises(StackOperationError) as caught:
        deploying(place, body=FAILING)
    line = str(caught.value)
    assert "Custom (Custom::Test) failed: " in line
    assert "the test wants it so" in line
    assert "the stack is as it was before" in line
    assert deployment.manager.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert bucket_item(deployment)["wc"]
    use_and_turn_the_hour({**opening, "namespace": "other"})
    wait_until(lambda: is_cleared(deployment))
    assert deployment.deploy(StackOptions(lambda_memory=512)) == ("updated", ())


def test_a_failed_creation_says_how_to_go_on_and_can_be_deployed_again(place, deployment):
    with pytest.raises(StackOperationError) as caught:
        deploying(place, body=FAILING)
    line = str(caught.value)
    assert "creation failed: Custom (Custom::Test) failed: " in line
    assert f"delete it: zae-limiter delete --name {place[0]}" in line
    assert deployment.manager.status() == "ROLLBACK_COMPLETE"
    buckets = deployment.manager.control.call("s3", "list_buckets")["Buckets"]
    assert not [each["Name"] for each in buckets if each["Name"].startswith(place[0])]
    assert deployment.deploy(StackOptions()).stack == "created"


def test_a_plan_after_a_failed_creation_says_how_to_go_on(place, deployment, command):
    """CloudFormation makes no change set for such a stack."""
    with pytest.raises(StackOperationError):
        deploying(place, body=FAILING)
    line = command("deploy", "--plan").error(1)
    assert "the stack is ROLLBACK_COMPLETE after a failed creation" in line
    assert "'deploy' without --plan removes it and creates it again" in line
    assert f"zae-limiter delete --name {place[0]}" in line
    assert deployment.manager.status() == "ROLLBACK_COMPLETE"
    delete(place)
    assert command("deploy", "--plan").code == 0


def test_an_upgrade_of_a_stuck_stack_leaves_the_table_alone(place, opening, command):
    """The stack could not be updated after the migration, so the migration does not begin."""
    body = with_custom_resource(deletion="FAILED")
    body["Resources"]["Table"]["DeletionPolicy"] = "Retain"  # the deletion goes on after a failure
    deployment = Deployment(*place, body=body)
    deployment.deploy(StackOptions())
    control = deployment.manager.control
    try:
        with pytest.raises(StackOperationError, match="could not be deleted"):
            deployment.delete()
        assert deployment.manager.status() == "DELETE_FAILED"
        with deployment.opened_engine() as engine:
            record = engine.documents.get("_", "version")
            engine.documents.put("_", "version", {**record, "schema_version": 0})
        before = stored_items(deployment)
        line = command("upgrade", "--yes").error(1)
        assert "the stack is DELETE_FAILED and cannot be updated" in line
        assert "migrat" not in line
        assert deployment.version_record()["schema_version"] == 0
        assert stored_items(deployment) == before
    finally:
        control.call(
            "cloudformation", "delete_stack", StackName=place[0], RetainResources=["Custom"]
        )
        control.call("dynamodb", "delete_table", TableName=place[0])
        deployment.close()


def stored_items(deployment):
    with deployment.opened_engine() as engine:
        items = engine.client.call("Scan", {})["Items"]
    return sorted(items, key=lambda item: (item["PK"]["S"], item["SK"]["S"]))


def test_events_are_shown_while_the_stack_is_in_progress(place):
    shown = {}

    def note(event):
        shown.setdefault((event.logical_id, event.status), time.monotonic())

    deploying(place, body=with_custom_resource(seconds=2), on_event=note)
    last = shown[place[0], "CREATE_COMPLETE"]
    assert last - shown["Table", "CREATE_COMPLETE"] > 0.5
    assert last - shown["Custom", "CREATE_IN_PROGRESS"] > 0.5


# --- several at once


OPEN = """
import sys
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
stack, region, endpoint = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with SyncRepository.open(stack=stack, region=region, endpoint_url=endpoint) as repository:
    limits = [Limit.per_minute("rpm", 10)]
    with SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpm": 1}, limits=limits):
        print(repository.namespace_id, flush=True)
"""


@pytest.mark.slow  # test_opening_deploys_a_missing_stack_with_the_options_of_the_builder is short
def test_two_processes_that_open_a_missing_stack_at_once_both_succeed(place, opening):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, *place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test"),
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    namespace_ids = {process.communicate(timeout=90)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(namespace_ids) == 1
    with SyncRepository.open(**opening) as repository:
        assert repository.get_bucket("key-1", "gpt-4", "rpm").total_consumed_milli == 2000


# --- killed


@pytest.mark.slow  # test_without_waiting_the_second_run_finishes_it is short
def test_a_deployment_that_was_killed_can_be_run_again(control_plane, place, opening):
    """Killed at a random moment each time, on a control plane that is slow to answer."""
    with Proxy(control_plane.url) as proxy:
        proxy.link.answer_ms = 200
        slow_place = (*place[:2], proxy.url)
        whole_s = timed_deployment(slow_place)
        chance = random.Random(14)
        for _ in range(20):
            delete(place)
            begun = start_deployment(slow_place)
            time.sleep(chance.uniform(0, whole_s))
            begun.send_signal(signal.SIGKILL)
            begun.communicate()
            again = start_deployment(slow_place)
            out, err = again.communicate(timeout=100)
            assert again.returncode == 0, err
            assert json.loads(out)["stack"] in ("created", "updated", "unchanged")
            with SyncRepository.open(**opening, provision="never") as repository:
                assert repository.get_version_record()["lambda_version"]
                with SyncRateLimiter(repository).acquire("k", "r", {"rpm": 1}, limits=LIMITS):
                    pass
        codes = function_codes(place)
    assert codes == [
        packages.aggregator_package().sha256,
        packages.provisioner_package().sha256,
    ]


def start_deployment(place):
    name, region, endpoint = place
    words = ("deploy", "--name", name, "--region", region, "--endpoint-url", endpoint)
    return subprocess.Popen(
        [sys.executable, "-m", "zae_limiter", *words, "--output", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test"),
    )


def timed_deployment(place):
    began = time.monotonic()
    process = start_deployment(place)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return time.monotonic() - began


def delete(place):
    deployment = Deployment(*place)
    try:
        deployment.delete()
    finally:
        deployment.close()


def function_codes(place):
    deployment = Deployment(*place)
    try:
        call = deployment.manager.control.call
        return [
            call("lambda", "get_function_configuration", FunctionName=name)["CodeSha256"]
            for name in functions(place[0])
        ]
    finally:
        deployment.close()


# --- rights


@pytest.fixture(scope="module")
def strict_control_plane():
    """A control plane that checks signatures and rights."""
    with Ministack(auth=True) as ministack:
        yield ministack


@pytest.fixture
def strict_place(strict_control_plane, unique_name):
    place = (unique_name, REGION, strict_control_plane.url)
    yield place
    delete(place)


def test_the_role_of_the_aggregator_has_the_rights_that_it_needs_and_no_others(strict_place):
    deployment = Deployment(*strict_place)
    opening = dict(zip(("stack", "region", "endpoint_url"), strict_place, strict=True))
    deployment.deploy(StackOptions())
    use_and_turn_the_hour(opening)
    wait_until(lambda: is_cleared(deployment))
    control = deployment.manager.control
    role = names.role(strict_place[0], "aggr")
    control.call("iam", "delete_role_policy", RoleName=role, PolicyName="aggregator")
    use_and_turn_the_hour({**opening, "namespace": "other"})
    group = names.log_group(names.aggregator_function(strict_place[0]))

    def denied():
        events = control.call("logs", "filter_log_events", logGroupName=group)["events"]
        return any("AccessDenied" in event["message"] for event in events)

    wait_until(denied)
    deployment.close()


def test_the_role_of_the_provisioner_has_the_rights_that_it_needs_and_no_others(strict_place):
    deployment = Deployment(*strict_place)
    deployment.deploy(StackOptions(enable_aggregator=False))
    remote = RemoteProvisioner(*strict_place)
    manifest = LimitsManifest.from_dict({"resources": {"api": {"limits": {"rpm": 5}}}})
    assert remote.apply(manifest)["created"] == 1
    assert remote.plan(manifest)["changes"] == []
    role = names.role(strict_place[0], "prov")
    deployment.manager.control.call(
        "iam", "delete_role_policy", RoleName=role, PolicyName="provisioner"
    )
    with pytest.raises(InfrastructureError, match=r"AccessDenied|not permitted"):
        remote.plan(manifest)
    remote.close()
    deployment.close()


def become_user(monkeypatch, place, *policies):
    """Act as a user who has nothing but these policies of the stack."""
    admin = Deployment(*place)
    control, user = admin.manager.control, f"user-{place[0]}"
    control.call("iam", "create_user", UserName=user)
    outputs = admin.manager.outputs()
    for policy in policies:
        arn = outputs[policy]
        control.call("iam", "attach_user_policy", UserName=user, PolicyArn=arn)
    key = control.call("iam", "create_access_key", UserName=user)["AccessKey"]
    admin.close()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    return lambda: control.call(
        "iam", "detach_user_policy", UserName=user, PolicyArn=outputs[policies[0]]
    )


def become_deployer(monkeypatch, place, *, without=()):
    """Act as a user who has the documented rights of the deployer."""
    admin = Deployment(*place)
    control, user = admin.manager.control, f"deployer-{place[0]}"
    statement = {
        "Effect": "Allow",
        "Action": sorted(documented_rights() - set(without)),
        "Resource": "*",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    control.call("iam", "create_user", UserName=user)
    control.call("iam", "put_user_policy", UserName=user, PolicyName="d", PolicyDocument=policy)
    key = control.call("iam", "create_access_key", UserName=user)["AccessKey"]
    admin.close()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])


def test_the_documented_rights_of_the_deployer_are_enough(strict_place, monkeypatch, capsys):
    """Our own calls; the control plane does not check the calls that CloudFormation makes."""
    name, region, url = strict_place
    line = CommandLine(capsys, "")

    def command(*words):
        return line(*words, "--name", name, "--region", region, "--endpoint-url", url)

    with monkeypatch.context() as user:
        become_deployer(user, strict_place)
        assert command("deploy", "--plan").code == 0
        assert command("deploy").code == 0
        assert command("deploy", "--lambda-memory", 512).code == 0
        assert command("status", "--output", "json").json["details"]["notes"] == []
        assert command("upgrade", "--dry-run").code == 0
        assert command("upgrade").code == 0
        assert command("check").code == 0
        assert command("delete", "--yes").code == 0


def test_a_missing_right_of_the_deployer_is_named(strict_place, monkeypatch):
    with monkeypatch.context() as user:
        become_deployer(user, strict_place, without=["lambda:UpdateFunctionCode"])
        with pytest.raises(PermissionDenied, match="lambda:update_function_code is not permitted"):
            deploying(strict_place)


def test_an_application_without_rights_on_functions_opens_with_a_warning(
    strict_place, strict_control_plane, monkeypatch, caplog
):
    admin = Deployment(*strict_place)
    admin.deploy(StackOptions())
    with admin.opened_engine() as engine:
        record = engine.documents.get("_", "version")
        engine.documents.put("_", "version", {**record, "lambda_version": "0.9.0"})
    opening = {"stack": strict_place[0], "region": REGION, "endpoint_url": strict_place[2]}
    with monkeypatch.context() as user:
        detach = become_user(user, strict_place, "AcquireOnlyPolicyArn")
        with SyncRepository.open(**opening) as repository:
            limiter = SyncRateLimiter(repository)
            with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, limits=LIMITS):
                pass
    assert "could not be updated (" in caplog.text
    assert "; update them: zae-limiter upgrade --name " in caplog.text
    detach()
    admin.close()


def test_without_permission_one_line_says_what_is_missing(
    strict_place, strict_control_plane, monkeypatch
):
    become_user(monkeypatch, strict_place)
    with pytest.raises(PermissionDenied, match="cloudformation:describe_stacks is not permitted"):
        deploying(strict_place)
    with pytest.raises(PermissionDenied) as caught:
        SyncRepository.open(
            stack=strict_place[0], region=REGION, endpoint_url=strict_control_plane.url
        )
    assert os.linesep not in str(caught.value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
