"""Load-test stacks on a local control plane: what it serves of CloudFormation, ECR, S3, ECS, EC2.

The build itself does not run there: CodeBuild is asked and answers. What it would build, and what
Fargate, Lambda and SSM are asked, is in tests/lab/loadtest.
"""

import json

import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.support.ministack import REGION
from zae_limiter_lab.loadtest import LoadPlan, LoadTestError
from zae_limiter_lab.loadtest.cloud import LoadTestStack, list_load_stacks
from zae_limiter_lab.loadtest.cloud_runs import CloudRuns
from zae_limiter_lab.loadtest.orchestrator import RunFiles


@pytest.fixture
def load_stack(place):
    said = []
    stack = LoadTestStack(*place, say=said.append, look_s=0.01)
    stack.said = said
    yield stack
    stack.delete()
    stack.close()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "simple.py").write_text("x = 1\n")
    return tmp_path


def test_the_life_of_a_load_test_stack(load_stack, folder, command, place):
    with pytest.raises(LoadTestError, match="deploy it first: zae-limiter loadtest deploy"):
        load_stack.push(folder)
    assert not load_stack.exists()
    boundary = "arn:aws:iam::000000000000:policy/boundary"
    first = load_stack.deploy(folder, permission_boundary=boundary)
    assert load_stack.deploy(folder) == first
    parameters = load_stack.manager.describe()["Parameters"]
    kept = {each["ParameterKey"]: each.get("ParameterValue") for each in parameters}
    assert kept["PermissionBoundary"] == boundary
    assert load_stack.exists()
    assert load_stack.image_uri() == first
    assert "with CodeBuild" in "".join(load_stack.said)
    (folder / "simple.py").write_text("x = 2\n")
    second = load_stack.push(folder)
    assert second != first
    outputs = load_stack.manager.outputs()
    assert outputs["WorkerFunction"] == f"{place[0]}-loadtest-worker"
    assert outputs["MasterTask"].endswith(":2") or "master" in outputs["MasterTask"]
    # Limiters and load tests are listed apart.
    assert [info.limiter for info in list_load_stacks(REGION, place[2])] == [place[0]]
    assert place[0] not in [info["stack_name"] for info in command("list", "--output", "json").json]


@pytest.mark.slow
def test_commands_and_runs(load_stack, folder, command, capsys, place):
    name = f"{place[0]}-loadtest"
    missing = command("loadtest", "delete", "--yes")
    assert "there is no load-test stack for" in missing.error(1)
    image = load_stack.deploy(folder)
    expected = {"name": name, "limiter": place[0], "image": image}
    for word in ("deploy", "push"):  # what has not changed is not built again
        ran = command("loadtest", word, "-C", folder, "--output", "json")
        assert (ran.code, json.loads(ran.out)) == (0, expected), ran.err
    # A deployed stack is where tests run. There is no Docker here for its function.
    ran = command("loadtest", "run", "-C", folder, "-f", "simple.py", "--duration", "1")
    first, last = ran.err.splitlines()
    assert first == (
        f"load test on AWS, stack {name}, one function: 1 worker, 10 users, 1 s, on {place[0]}"
    )
    assert (ran.code, last.startswith("error: ")) == (1, True)
    follow_a_run(load_stack)
    where = ("--region", place[1], "--endpoint-url", place[2])
    (listed,) = CommandLine(capsys, "")("loadtest", "list", *where, "--output", "json").json
    assert (listed["stack_name"], listed["has_image"]) == (name, True)
    assert name in CommandLine(capsys, "")("loadtest", "list", *where).out
    ran = command("loadtest", "delete", "--yes", "--output", "json")
    assert json.loads(ran.out) == {"name": name, "deleted": True}
    assert not load_stack.delete()


def follow_a_run(load_stack):
    """Start a master, and follow what it would write."""
    runs = CloudRuns(load_stack)
    task = runs.start_master(LoadPlan("simple.py", workers=2), "run-1")
    description = load_stack.control.call(
        "ecs", "describe_tasks", cluster=load_stack.name, tasks=[task]
    )["tasks"][0]
    variables = description["overrides"]["containerOverrides"][0]["environment"]
    values = {each["name"]: each["value"] for each in variables}
    assert json.loads(values["PLAN"])["host"] == load_stack.limiter
    assert (values["RUN_ID"], values["WEB_UI"]) == ("run-1", "0")
    files = RunFiles(load_stack.control, load_stack.manager.outputs()["FilesBucket"], "run-1")
    progress = {"event": "progress", "seconds": 5.0}
    files.put("progress", progress)
    shown = []

    def show(message):
        shown.append(message)
        files.put("report", {"report": {"seconds": 9}})

    assert runs._follow("run-1", task, show) == {"seconds": 9}  # noqa: SLF001
    assert shown == [progress]
    runs.stop(task)
