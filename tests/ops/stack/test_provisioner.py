"""Manifests applied by the function of a stack, and by stacks with the custom resource."""

import json
from dataclasses import replace

import pytest
import yaml

from tests.ops.stack.usage import calls_of, wait_until
from zae_limiter import Limit, SyncRepository
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.stack import StackOptions
from zae_limiter_ops._async.infra.remote_provisioner import (
    RemoteProvisioner as AsyncRemoteProvisioner,
)
from zae_limiter_ops._sync.infra.remote_provisioner import RemoteProvisioner
from zae_limiter_ops.infra import names
from zae_limiter_ops.infra.packages import provisioner_package
from zae_limiter_ops.infra.provisioner import limits_template
from zae_limiter_ops.manifest.declarations import LimitDecl, LimitsManifest, ResourceDecl
from zae_limiter_ops.manifest.deletions import DeletionsRefused
from zae_limiter_ops.manifest.problems import ApplyConflict, ManifestError

RPM_500 = [Limit.per_minute("rpm", 500)]


def manifest(rpm=500, **more):
    return LimitsManifest.from_dict(
        {
            "system": {"on_unavailable": "block", "limits": {"rpm": {"capacity": 1000}}},
            "resources": {"gpt-4": {"limits": {"rpm": {"capacity": rpm}}}},
            "entities": {
                "team": {"cascade": False},
                "user": {"parent": "team", "cascade": True, "limits": {"rpm": "10/sec:20"}},
            },
            **more,
        }
    )


@pytest.fixture
def deployed(deployment):
    deployment.deploy(StackOptions(enable_aggregator=False))
    return deployment


@pytest.fixture
def remote(deployed, place):
    provisioner = RemoteProvisioner(*place, principal="ci")
    yield provisioner
    provisioner.close()


# --- the function


def test_the_function_plans_applies_and_finds_drift(remote, opening):
    assert remote.is_there()
    plan = remote.plan(manifest())
    assert [(change["kind"], change["entity_id"]) for change in plan["changes"]] == [
        ("system", None),
        ("on_unavailable", None),
        ("resource", None),
        ("entity", "team"),
        ("entity", "user"),
        ("entity_limits", "user"),
    ]
    result = remote.apply(manifest(), approved=plan["revision"])
    assert (result["created"], result["updated"], result["deleted"]) == (6, 0, 0)
    assert remote.plan(manifest())["changes"] == []
    with SyncRepository.open(**opening) as repository:
        assert repository.get_resource_defaults("gpt-4") == RPM_500
        assert repository.get_entity("user").parent_id == "team"
        assert repository.get_limits("user") == [Limit.parse("rpm:10/sec:20")]
        assert repository.get_audit_events("user")[0].principal == "ci"
        repository.set_resource_defaults("gpt-4", [Limit.per_minute("rpm", 7)], principal="bob")
    (drift,) = remote.diff(manifest())["drift"]
    assert (drift["resource"], drift["principal"], drift["cause"]) == ("gpt-4", "bob", "by_hand")
    with pytest.raises(ApplyConflict, match="another apply was made since this plan"):
        remote.apply(manifest(), approved=plan["revision"])


async def test_mistakes_come_back_as_one_line(remote, place):
    other = AsyncRemoteProvisioner(*place, namespace="nowhere")
    with pytest.raises(InfrastructureError, match="'nowhere'"):
        await other.plan(manifest())
    await other.close()
    wrong = LimitsManifest(resources={"no#name": ResourceDecl({"rpm": LimitDecl(5)})})
    with pytest.raises(ManifestError, match="may contain letters, digits"):
        remote.plan(wrong)


def test_a_stack_without_the_function_has_none(deployment, place):
    deployment.deploy(StackOptions(create_iam=False))
    remote = RemoteProvisioner(*place)
    assert not remote.is_there()
    remote.close()


# --- the command line


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text(yaml.safe_dump(manifest().to_dict()))
    return path


def test_commands_call_the_function_unless_they_are_told_not_to(
    deployed, command, opening, file, monkeypatch
):
    def limits(word, *args):
        return command("limits", word, "-f", file, *args)

    assert "6 to create" in limits("plan").out
    assert "6 created" in limits("apply", "--principal", "ci").out
    assert limits("plan").out == "plan: no changes, 6 unchanged\n"
    assert limits("diff", "--detailed-exitcode").code == 0
    with SyncRepository.open(**opening) as repository:
        assert repository.get_audit_events("user")[0].principal == "ci"
        repository.delete_resource_defaults("gpt-4", principal="bob")
    found = limits("diff", "--detailed-exitcode")
    assert (found.code, "last change by bob" in found.out) == (3, True)
    control, function = deployed.manager.control, names.provisioner_function(deployed.name)
    assert calls_of(deployed) == 6  # an apply is two
    control.call("lambda", "delete_function", FunctionName=function)
    assert "1 created" in limits("apply").out  # without the function
    assert calls_of(deployed) == 6


def test_direct_commands_leave_the_function_alone(deployed, command, file):
    assert "6 created" in command("limits", "apply", "-f", file, "--direct").out
    assert calls_of(deployed) == 0


def test_the_template_of_a_manifest_is_printed(command, file, deployment, tmp_path):
    printed = command("limits", "cfn-template", "-f", file)
    assert yaml.safe_load(printed.out) == limits_template(
        deployment.name, replace(manifest(), namespace=None)
    )
    target = tmp_path / "stack.yaml"
    written = command("limits", "cfn-template", "-f", file, "-o", target, "--namespace", "prod")
    assert (written.code, written.out) == (0, f"template written to {target}\n")
    body = yaml.safe_load(target.read_text())
    assert body["Resources"]["Limits"]["Properties"]["Manifest"]["namespace"] == "prod"


def test_the_function_is_deployed_reported_and_brought_up(deployed, command, opening):
    function = names.provisioner_function(deployed.name)
    shown = command("status", "--output", "json").json["details"]["functions"]
    assert [each["name"] for each in shown] == [function]
    assert shown[0]["is_current"]
    assert f"{function}: Active, this version's code, 0 errors" in command("status").out
    control = deployed.manager.control
    assert code_of(control, function) == provisioner_package().sha256
    exported = deployed.manager.outputs()["ProvisionerArn"]
    assert exported.endswith(f":function:{function}")


def code_of(control, function):
    return control.call("lambda", "get_function_configuration", FunctionName=function)["CodeSha256"]


# --- the custom resource


@pytest.fixture
def limits_stack(deployed):
    """Create, update and delete a stack that has the limits of a manifest."""
    stack = LimitsStack(deployed)
    yield stack
    stack.delete()


class LimitsStack:
    def __init__(self, deployment):
        self._control = deployment.manager.control
        self._limiter = deployment.name
        self.name = f"{deployment.name}-limits"

    def create(self, body):
        self._call("create_stack", TemplateBody=json.dumps(body))

    def update(self, body):
        self._call("update_stack", TemplateBody=json.dumps(body))

    def delete(self):
        self._call("delete_stack")
        wait_until(lambda: self.status() in (None, "DELETE_COMPLETE"))

    def status(self):
        pages = self._control.pages("cloudformation", "list_stacks")
        found = [each for page in pages for each in page["StackSummaries"]]
        statuses = [each["StackStatus"] for each in found if each["StackName"] == self.name]
        return statuses[0] if statuses else None

    def ends_as(self, status):
        wait_until(lambda: not self.status().endswith("_IN_PROGRESS"))
        assert self.status() == status, self.reasons()

    def reasons(self):
        events = self._control.call("cloudformation", "describe_stack_events", StackName=self.name)[
            "StackEvents"
        ]
        return [event.get("ResourceStatusReason", "") for event in events]

    def body(self, wanted):
        return limits_template(self._limiter, wanted)

    def _call(self, operation, **parameters):
        self._control.call("cloudformation", operation, StackName=self.name, **parameters)


def test_a_stack_with_limits_is_created_updated_rolled_back_and_deleted(limits_stack, opening):
    with SyncRepository.open(**opening) as repository:
        repository.set_resource_defaults("by-hand", RPM_500)

        def rpm():
            limits = repository.get_resource_defaults("gpt-4")
            return limits[0].capacity if limits else None

        limits_stack.create(limits_stack.body(manifest()))
        limits_stack.ends_as("CREATE_COMPLETE")
        assert rpm() == 500
        assert repository.get_entity("user").cascade
        principal = repository.get_audit_events("user")[0].principal
        assert principal == f"cloudformation:{limits_stack.name}"

        limits_stack.update(limits_stack.body(manifest(600)))
        limits_stack.ends_as("UPDATE_COMPLETE")
        assert rpm() == 600

        wrong = limits_stack.body(manifest(700))
        wrong["Resources"]["Limits"]["Properties"]["Manifest"]["entities"]["user"]["cascade"] = "no"
        limits_stack.update(wrong)
        limits_stack.ends_as("UPDATE_ROLLBACK_COMPLETE")
        assert rpm() == 600
        assert any("cascade: must be true or false" in each for each in limits_stack.reasons())

        limits_stack.delete()
        assert rpm() is None
        assert repository.get_entity("user") is None
        assert repository.get_resource_defaults("by-hand") == RPM_500


def many(count):
    names = [f"model-{number}" for number in range(count)]
    return LimitsManifest.from_dict({"resources": {name: {"limits": {"rpm": 5}} for name in names}})


def test_an_update_that_deletes_much_needs_its_number_and_a_deletion_does_not(
    limits_stack, opening
):
    def has(count):
        with SyncRepository.open(**opening) as repository:
            return len(repository.list_resources_with_defaults()) == count

    limits_stack.create(limits_stack.body(many(40)))
    limits_stack.ends_as("CREATE_COMPLETE")
    limits_stack.update(limits_stack.body(many(1)))
    limits_stack.ends_as("UPDATE_ROLLBACK_COMPLETE")
    assert any("would delete 39 of 40 managed" in each for each in limits_stack.reasons())
    assert has(40)
    allowed = limits_stack.body(many(20))
    allowed["Resources"]["Limits"]["Properties"]["AllowDeletions"] = 20
    limits_stack.update(allowed)
    limits_stack.ends_as("UPDATE_COMPLETE")
    assert has(20)
    limits_stack.delete()
    assert has(0)


def test_the_function_deletes_much_only_with_its_number(remote):
    remote.apply(many(40))
    with pytest.raises(DeletionsRefused, match="would delete 39 of 40 managed"):
        remote.apply(many(1))
    assert remote.apply(many(1), allow_deletions=39)["deleted"] == 39
    with pytest.raises(ManifestError, match="declares no setting"):
        remote.apply(LimitsManifest())


def test_a_creation_that_would_delete_much_deletes_nothing(remote, limits_stack, opening):
    remote.apply(many(40))
    limits_stack.create(limits_stack.body(many(1)))
    limits_stack.ends_as("ROLLBACK_COMPLETE")
    limits_stack.delete()
    with SyncRepository.open(**opening) as repository:
        assert len(repository.list_resources_with_defaults()) == 40


def test_an_update_that_fails_elsewhere_brings_the_old_limits_back(limits_stack, opening):
    """The limits are applied; another resource of the stack fails, so they are rolled back."""
    limits_stack.create(limits_stack.body(manifest()))
    limits_stack.ends_as("CREATE_COMPLETE")
    failing = limits_stack.body(manifest(600))
    failing["Resources"]["Other"] = {
        **failing["Resources"]["Limits"],
        "DependsOn": "Limits",
    }
    failing["Resources"]["Other"]["Properties"] = {
        **failing["Resources"]["Other"]["Properties"],
        "Namespace": "nowhere",
    }
    limits_stack.update(failing)
    limits_stack.ends_as("UPDATE_ROLLBACK_COMPLETE")
    with SyncRepository.open(**opening) as repository:
        assert repository.get_resource_defaults("gpt-4") == RPM_500


def test_a_creation_that_fails_leaves_what_others_have_applied(remote, limits_stack, opening):
    remote.apply(manifest())
    wrong = limits_stack.body(manifest())
    wrong["Resources"]["Limits"]["Properties"]["Namespace"] = "nowhere"
    limits_stack.create(wrong)
    limits_stack.ends_as("ROLLBACK_COMPLETE")
    assert any("nowhere" in each for each in limits_stack.reasons())
    limits_stack.delete()
    with SyncRepository.open(**opening) as repository:
        assert repository.get_resource_defaults("gpt-4") == RPM_500
