"""The CDK construct, synthesized in an environment of its own: its libraries take 460 MB.

``ZAEL_CDK_PYTHON`` names the interpreter of an environment that has them already.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
APP = """
import json, sys
from aws_cdk import App, Stack
from aws_cdk import aws_iam as iam
from zae_limiter_ops.cdk import RateLimiterConstruct
from zae_limiter.models.stack import StackOptions

app = App(outdir=sys.argv[1])
stack = Stack(app, "Limits")
options = StackOptions(role_name_format="pb-{}-x", lambda_memory=512)
limiter = RateLimiterConstruct(stack, "Limiter", name="my-app", options=options)
limiter.attach("acq", iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal()))
try:
    limiter.attach("acquire", None)
except ValueError as error:
    assert "ns-acq" in str(error)
print(json.dumps(app.synth().get_stack_by_name("Limits").template))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get("ZAEL_CDK_PYTHON"):
        return Path(named)
    folder = tmp_path_factory.mktemp("cdk")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, "aws-cdk-lib>=2.150", "constructs>=10", "PyYAML"], check=True)
    return python


def test_the_construct_is_the_template_under_its_own_name(python: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [python, "-c", APP, tmp_path / "out"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    synthesized = json.loads(ran.stdout.splitlines()[-1])
    resources = synthesized["Resources"]
    assert resources["Table"]["Properties"]["TableName"] == "my-app"
    for function in ("Aggregator", "Provisioner"):
        assert "S3Key" in resources[function]["Properties"]["Code"]
    assert synthesized["Parameters"]["LambdaMemory"]["Default"] == "512"
    assert synthesized["Parameters"]["RoleNamePrefix"]["Default"] == "pb-"
    (role,) = [each for name, each in resources.items() if name.startswith("Role")]
    assert role["Properties"]["ManagedPolicyArns"] == [{"Ref": "AcquireOnlyPolicy"}]
    path = tmp_path / "template.json"
    path.write_text(json.dumps(synthesized))
    # Warnings are about what CDK makes of the template; errors would be ours.
    program = Path(sys.executable).with_name("cfn-lint")
    subprocess.run([program, "--ignore-checks", "W", "--", path], check=True)
