"""A deployment that ended before the code of the functions was uploaded is noticed."""

import pytest

from zae_limiter.models.stack import StackOptions
from zae_limiter_ops.infra import names
from zae_limiter_ops.infra.aggregator import PLACEHOLDER
from zae_limiter_ops.infra.packages import zipped

OPTIONS = StackOptions(enable_aggregator=False)


@pytest.fixture
def begun(deployment):
    """A stack whose function has the code of the template, as after a deployment was killed."""
    deployment.manager.deploy(OPTIONS)
    return deployment


def test_functions_without_code_are_reported_until_the_deployment_is_finished(begun, command):
    function = names.provisioner_function(begun.name)
    for _ in range(2):
        checked = command("check")
        assert checked.code == 1
        assert f"{function} has no code yet" in checked.err
        assert f"zae-limiter deploy --name {begun.name}" in checked.err
        found = command("check", "--output", "json")
        assert '"compatible": false' in found.out
        assert f'"functions_without_code": [\n    "{function}"\n  ]' in found.out
        shown = command("status")
        assert f"{function}: Active, no code yet, 0 errors" in shown.out
        assert f"zae-limiter deploy --name {begun.name}" in shown.err
        begun.manager.deploy(OPTIONS)  # killed again
    command("deploy", "--no-aggregator")
    checked = command("check")
    assert (checked.code, checked.err) == (0, "")
    assert "no code yet" not in command("status").out


def test_the_code_of_a_later_function_is_missed_although_the_versions_agree(deployment, command):
    deployment.deploy(OPTIONS)
    assert command("check").code == 0
    function = names.provisioner_function(deployment.name)
    placeholder = zipped({"index.py": PLACEHOLDER.encode()})
    deployment.manager.control.call(
        "lambda", "update_function_code", FunctionName=function, ZipFile=placeholder
    )
    assert f"{function} has no code yet" in command("check").err
