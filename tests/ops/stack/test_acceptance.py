"""The acceptance command on a local control plane; what this cannot show is in the documents."""

import gzip
import io
import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.dynamodb import DynamoServer
from tests.support.ministack import REGION, Ministack
from tools.accept_aws import deletion, expiry
from tools.accept_aws.__main__ import ENDING, STEPS, main
from tools.accept_aws.records import FAILED, PASSED, SKIPPED
from tools.accept_aws.run import TAG, Run, Settings, Step, execute
from tools.accept_aws.signing_hop import SigningHop
from zae_limiter import SyncRepository
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table
from zae_limiter.exceptions import PermissionDenied
from zae_limiter.models.stack import StackOptions

ROOT = Path(__file__).parents[3]
BY_NAME = {step.name: step for step in STEPS}
WITHIN_S = 60


@pytest.fixture
def accept(place, tmp_path):
    """Run the command; return its exit code and the report of its steps."""
    name, region, endpoint_url = place

    def accept(*words, folder=tmp_path):
        code = main(
            [
                *("--name", name, "--region", region, "--endpoint-url", endpoint_url),
                *("--folder", str(tmp_path), "--within-s", str(WITHIN_S), *words),
            ]
        )
        report = folder / "report.json"
        return code, json.loads(report.read_text()) if report.exists() else None

    return accept


@pytest.fixture
def run(place, tmp_path):
    name, region, endpoint_url = place
    settings = Settings(name, region, tmp_path, endpoint_url, within_s=WITHIN_S)
    with closing(Run(settings)) as run:
        yield run


def client_of(table, endpoint_url):
    return closing(DynamoClient(table, endpoint_url=endpoint_url, request_timeout=10))


def only(*names):
    return [word for name in names for word in ("--only", name)]


def outcomes(report):
    return {step["name"]: step["outcome"] for step in report["steps"]}


def test_a_stack_is_deployed_twice_and_deleted(accept, deployment, place, capsys):
    code, report = accept("--yes", *only("deploy-again"))
    assert code == 0, report
    assert set(outcomes(report).values()) == {PASSED}
    assert list(outcomes(report)) == ["deploy", "deploy-again", "delete", "left-over"]
    assert deployment.manager.status() is None
    said = capsys.readouterr().out
    assert f"Account 000000000000, region {REGION}, stack {place[0]}" in said
    assert "Expected cost" in said


@pytest.mark.slow
def test_all_steps_without_a_suite_are_tried_on_a_local_control_plane(accept, deployment):
    tried = only("deploy-again", "usage", "limits-stack", "policies", "expiry")
    code, report = accept("--yes", *tried)
    assert code == 0, report
    assert outcomes(report) == {
        "deploy": PASSED,
        "deploy-again": PASSED,
        "policies": SKIPPED,  # this server checks no rights
        "usage": PASSED,
        "limits-stack": PASSED,
        "expiry": SKIPPED,  # takes days
        "delete": PASSED,
        "left-over": PASSED,
    }
    assert deployment.manager.status() is None


def test_an_existing_stack_is_refused_and_stays(accept, deployment, capsys):
    deployment.deploy(StackOptions(enable_aggregator=False))
    code, report = accept("--yes")
    assert (code, report) == (2, None)
    assert "exists; choose another --name" in capsys.readouterr().err
    assert accept("--resume", "--delete") == (2, None), "a stack of somebody else"
    assert deployment.manager.status() == "CREATE_COMPLETE"


@pytest.mark.parametrize("answer", ["", "n\n"], ids=["end of input", "no"])
def test_nothing_is_done_without_consent(accept, deployment, monkeypatch, capsys, answer):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert accept() == (2, None)
    assert "nothing was done" in capsys.readouterr().err
    assert deployment.manager.status() is None


def test_after_a_failed_step_everything_is_deleted(run):
    def fail(run):
        run.deployment.manager.refuse_stuck()
        raise AssertionError("this step fails")

    with client_of(f"{run.name}-suite", run.settings.endpoint_url) as client:
        make_table(client, stream=False)
    run.created_tables.write_text(f"{run.name}-suite\nnever-created\n")
    execute(run, [BY_NAME["deploy"], Step("fail", fail)], list(ENDING))
    assert [step.outcome for step in run.report.steps] == [PASSED, FAILED, PASSED, PASSED]
    assert list(deletion.left_over(run)) == []


def test_left_overs_are_listed(run, deployment):
    deployment.deploy(StackOptions())
    execute(run, [], [ENDING[1]])
    assert run.report.steps[-1].outcome == FAILED
    kinds = {each.split(" ")[0] for each in run.report.left}
    assert kinds == {
        "alarm",
        "bucket",
        "function",
        "log",
        "policy",
        "queue",
        "role",
        "stack",
        "table",
    }
    assert f"table {run.name}" in run.report.left


@pytest.mark.slow
def test_a_kept_stack_is_resumed_and_deleted_once_its_events_are_archived(
    accept, run, deployment, tmp_path, capsys
):
    code, report = accept("--yes", "--keep", *only("expiry"))
    assert (code, outcomes(report)) == (0, {"deploy": PASSED, "expiry": PASSED})
    assert TAG in deployment.options().tags

    resumed = tmp_path / "resumed"
    capsys.readouterr()
    code, report = accept("--resume", folder=resumed)
    assert (code, outcomes(report)) == (0, {"expiry": SKIPPED})
    assert "1 event still stored after" in report["steps"][0]["detail"]
    assert "Expected cost" not in capsys.readouterr().out  # nothing is tried again

    lost = expire_events(run)
    code, report = accept("--resume", folder=resumed)
    assert (code, outcomes(report)) == (1, {"expiry": FAILED})
    assert lost[0] in report["steps"][0]["detail"]
    assert deployment.manager.status() == "CREATE_COMPLETE"

    archive(run, lost)
    code, report = accept("--resume", folder=resumed)
    assert code == 0
    assert outcomes(report) == {"expiry": PASSED, "delete": PASSED, "left-over": PASSED}
    assert deployment.manager.status() is None


def expire_events(run):
    """Delete the planted events from the table, as the TTL does; return their ids."""
    planted = json.loads(expiry.plan_file(run).read_text())["event_ids"]
    with SyncRepository.open(**run.opening, namespace=expiry.NAMESPACE) as repository:
        prefix = f"{repository.get_namespace(expiry.NAMESPACE).namespace_id}/AUDIT#"
    with run.deployment.opened_engine() as engine:
        for item in engine.client.call("Scan", {})["Items"]:
            if item["PK"]["S"].startswith(prefix):
                engine.client.call("DeleteItem", {"Key": {"PK": item["PK"], "SK": item["SK"]}})
    return planted


def archive(run, event_ids):
    """Store events in the archive, as the aggregator does."""
    lines = "\n".join(json.dumps({"event_id": each}) for each in event_ids)
    run.control.call(
        "s3",
        "put_object",
        Bucket=run.deployment.manager.outputs()["ArchiveBucket"],
        Key="audit/year=2026/month=01/day=01/a.jsonl.gz",
        Body=gzip.compress(lines.encode()),
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_an_interrupted_suite_ends_and_everything_is_deleted(run, place, tmp_path, number):
    name, region, endpoint_url = place
    words = ("--name", name, "--region", region, "--endpoint-url", endpoint_url, "--yes")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "tools.accept_aws", *words, "--only", "contract"),
            *("--folder", str(tmp_path), "--workers", "1", "--settle-s", "0"),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        for line in command.stdout:
            if "%]" in line:  # some tests have run
                command.send_signal(number)
                break
        said = command.stdout.read()
    assert command.returncode == 130, said
    assert "interrupted: the resources are deleted now" in said
    report = json.loads((tmp_path / "report.json").read_text())
    assert outcomes(report) == {
        "deploy": PASSED,
        "contract": FAILED,
        "delete": PASSED,
        "left-over": PASSED,
    }
    assert list(deletion.left_over(run)) == []


@pytest.mark.parametrize(
    ("values", "outcome"),
    [({":0": {"N": "1"}}, PASSED), ({":0": {"N": "1"}, ":9": {"N": "1"}}, FAILED)],
    ids=["valid", "unused value"],
)
def test_recorded_forms_are_replayed(run, tmp_path, values, outcome):
    watch = pytest.importorskip("tests.support.aws_rules.watch", reason="there is no recorder")
    body = {
        "TableName": "table-of-forms",
        "Key": {"PK": {"S": "key-1"}, "SK": {"S": "s"}},
        "UpdateExpression": "SET #0=:0",
        "ExpressionAttributeNames": {"#0": "a0"},
        "ExpressionAttributeValues": values,
    }
    forms = tmp_path / "forms"
    forms.mkdir()
    (forms / "1.jsonl").write_text(json.dumps(["UpdateItem", json.dumps(body)]))
    assert len(watch.read_forms(forms)) == 1
    run.is_deployed = True  # the step makes a table of its own
    run.settings = replace(run.settings, forms=forms)
    with watch.unwatched():
        execute(run, [BY_NAME["forms"]], [])
    assert run.report.steps[-1].outcome == outcome, run.report.steps


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_documented_units_are_consumed_behind_the_hop(run):
    with DynamoServer() as server:  # which reports capacity as AWS documents it
        run.settings = replace(run.settings, endpoint_url=server.url, workers=2, settle_s=0.0)
        run.is_deployed = True  # the suite makes tables of its own
        execute(run, [BY_NAME["units"]], [])
    assert run.report.steps[-1].outcome == PASSED, run.report.steps
    assert len(run.report.units) > 50
    assert all(each["documented"] == each["seen"] for each in run.report.units)


# --- where rights and signatures are checked


@pytest.fixture(scope="module")
def guarded():
    """A control plane that checks signatures and rights."""
    with Ministack(auth=True) as ministack:
        yield ministack


@pytest.fixture
def guarded_run(guarded, unique_name, tmp_path):
    settings = Settings(unique_name, REGION, tmp_path, guarded.url, workers=1, within_s=WITHIN_S)
    with closing(Run(settings)) as run:
        yield run


@pytest.mark.slow
def test_the_policies_of_the_whole_table_hold(guarded_run):
    execute(guarded_run, [BY_NAME["deploy"], BY_NAME["policies"]], [])
    tried = guarded_run.report.steps[-1]
    assert tried.outcome == SKIPPED, tried
    assert tried.detail.startswith("acq, full, read hold; this server does not evaluate")


def test_the_hop_signs_again_and_leaves_the_ttl_off(guarded_run, monkeypatch):
    tables, endpoint = guarded_run.created_tables, guarded_run.settings.endpoint_url
    credentials = guarded_run.credentials()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTTESTTESTTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    table = f"{guarded_run.name}-hop"
    with client_of(table, endpoint) as direct, pytest.raises(PermissionDenied):
        direct.call("DescribeTable", {})
    hop = SigningHop(endpoint, REGION, credentials, tables, settle_s=0)
    with hop, client_of(table, hop.url) as client:
        make_table(client, stream=False)
        key = {"PK": {"S": "a"}, "SK": {"S": "b"}}
        client.call("PutItem", {"Item": {**key, "text": {"S": "ö"}}})
        assert client.call("GetItem", {"Key": key})["Item"]["text"] == {"S": "ö"}
        ttl = client.call("DescribeTimeToLive", {})["TimeToLiveDescription"]
    assert ttl["TimeToLiveStatus"] == "DISABLED"
    assert tables.read_text() == f"{table}\n"


def test_a_query_of_an_index_waits_for_the_last_write(guarded_run):
    endpoint, tables = guarded_run.settings.endpoint_url, guarded_run.created_tables
    hop = SigningHop(endpoint, REGION, guarded_run.credentials(), tables, settle_s=0.5)
    query = {
        "KeyConditionExpression": "PK = :a",
        "ExpressionAttributeValues": {":a": {"S": "a"}},
    }
    of_index = {**query, "IndexName": "GSI1", "KeyConditionExpression": "GSI1PK = :a"}
    with hop, client_of(f"{guarded_run.name}-index", hop.url) as client:
        make_table(client, stream=False)
        client.call("PutItem", {"Item": {"PK": {"S": "a"}, "SK": {"S": "b"}}})
        written_at = time.monotonic()
        assert client.call("Query", query)["Count"] == 1
        client.call("Query", of_index)
        assert time.monotonic() - written_at >= 0.4


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_suite_runs_through_the_hop(guarded_run):
    guarded_run.settings = replace(
        guarded_run.settings, select="TestDynamodbRecords and entities", settle_s=0.0
    )
    execute(guarded_run, [BY_NAME["deploy"], BY_NAME["contract"]], list(ENDING))
    assert [step.outcome for step in guarded_run.report.steps] == [PASSED] * 4
