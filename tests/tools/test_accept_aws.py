"""The acceptance command where no control plane is needed: arguments, report and order of steps."""

import json
import socket
import struct
import time
from types import SimpleNamespace

import pytest

from tools.accept_aws import __main__ as command
from tools.accept_aws.policies import ALL_CALLS, NOBODY, OTHER, PERMITTED
from tools.accept_aws.records import FAILED, PASSED, SKIPPED, Report, Skip, StepResult
from tools.accept_aws.run import Step, execute
from tools.accept_aws.signing_hop import SigningHop, tables_of
from tools.accept_aws.suites import on_table, read_costs


@pytest.fixture
def report():
    return Report("123456789012", "eu-west-1", "accept-1", "AWS", "1.0", "2026-01-01T00:00:00Z")


@pytest.fixture
def run(report, tmp_path):
    """All that the execution of steps needs of a run."""
    return SimpleNamespace(
        name="accept-1",
        report=report,
        report_folder=tmp_path,
        is_deployed=True,
        created_tables=tmp_path / "tables",
    )


def outcomes(report):
    return [(step.name, step.outcome, step.detail) for step in report.steps]


def raising(error):
    def function(run):
        raise error

    return function


@pytest.mark.parametrize("missing", ["--region", "--name"])
def test_region_and_name_are_required(capsys, missing):
    given = {"--region": "eu-west-1", "--name": "accept-1"}
    del given[missing]
    with pytest.raises(SystemExit) as ended:
        command.main([word for pair in given.items() for word in pair])
    assert ended.value.code == 2
    assert missing in capsys.readouterr().err


def test_a_name_that_no_stack_can_have_is_refused(capsys, tmp_path):
    folder = tmp_path / "report"
    words = ("--region", "eu-west-1", "--name", "no/name", "--folder", str(folder))
    assert command.main(list(words)) == 2
    assert "no/name" in capsys.readouterr().err
    assert not folder.exists()


def test_the_help_names_every_step(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(step.name in shown for step in command.STEPS)


def test_a_failed_step_does_not_prevent_the_next_ones_nor_the_deletion(run):
    steps = [
        Step("first", raising(AssertionError("it is wrong"))),
        Step("second", raising(Skip("not here"))),
        Step("third", lambda run: "well"),
    ]
    execute(run, steps, [Step("delete", lambda run: "gone")])
    assert outcomes(run.report) == [
        ("first", FAILED, "AssertionError: it is wrong"),
        ("second", SKIPPED, "not here"),
        ("third", PASSED, "well"),
        ("delete", PASSED, "gone"),
    ]
    assert not run.report.has_passed


def test_without_a_stack_the_steps_that_need_it_are_skipped(run):
    run.is_deployed = False
    steps = [Step("needs", lambda run: ""), Step("alone", lambda run: "", needs_stack=False)]
    execute(run, steps, [])
    assert [step.outcome for step in run.report.steps] == [SKIPPED, PASSED]
    assert run.report.has_passed


def test_an_interrupt_still_deletes(run):
    steps = [Step("first", raising(KeyboardInterrupt())), Step("never", lambda run: "")]
    with pytest.raises(KeyboardInterrupt):
        execute(run, steps, [Step("delete", lambda run: "gone")])
    assert outcomes(run.report) == [("first", FAILED, "interrupted"), ("delete", PASSED, "gone")]


def test_an_interrupted_deletion_says_what_to_delete(run, capsys):
    with pytest.raises(KeyboardInterrupt):
        execute(run, [], [Step("delete", raising(KeyboardInterrupt()))])
    said = capsys.readouterr().out
    assert "the stacks accept-1-limits and accept-1" in said
    assert str(run.created_tables) in said


def test_the_report_is_written_after_each_step(run, tmp_path):
    def look(run):
        return str(len(json.loads((tmp_path / "report.json").read_text())["steps"]))

    execute(run, [Step("first", lambda run: ""), Step("second", look)], [])
    assert run.report.steps[1].detail == "1"


def test_both_forms_of_the_report_have_steps_units_and_left_overs(report, tmp_path):
    report.steps = [
        StepResult("deploy", PASSED, 12.34),
        StepResult("contract", FAILED, 5.0, "a | b\nc"),
    ]
    report.units = [
        {"operation": "acquire, warm", "documented": [1, 1.0, 0.0], "seen": [1, 2.5, 0]}
    ]
    report.left = ["table test-1"]
    report.write(tmp_path)
    read = json.loads((tmp_path / "report.json").read_text())
    assert (read["passed"], read["account"], read["left"]) == (
        False,
        "123456789012",
        ["table test-1"],
    )
    assert [step["outcome"] for step in read["steps"]] == [PASSED, FAILED]
    page = (tmp_path / "report.md").read_text().splitlines()
    assert "| deploy | passed | 12.3 |  |" in page
    assert "| contract | failed | 5.0 | a \\| b<br>c |" in page
    assert "| acquire, warm | 1 / 1 / 0 | 1 / 2.5 / 0 | differs |" in page
    assert "- table test-1" in page


def test_a_difference_of_units_beats_an_agreement(tmp_path):
    costs = tmp_path / "costs.jsonl"
    assert read_costs(costs) == []
    rows = [
        {"operation": "a", "documented": [1, 1, 0], "seen": seen}
        for seen in ([1, 1, 0], [1, 2, 0], [1, 1, 0])
    ]
    costs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_costs(costs) == [rows[1]]


def test_policies_of_namespaces_permit_no_call_on_another_namespace():
    for policy, permitted in PERMITTED.items():
        assert permitted <= ALL_CALLS - NOBODY
        crosses = any(OTHER in call.namespaces for call in permitted)
        assert crosses != policy.startswith("ns-")


def test_a_form_is_sent_to_the_table_of_the_run():
    single = {"TableName": "old", "Key": {}}
    assert on_table(single, "new") == {"Key": {}}
    transaction = {"TransactItems": [{"Put": {"TableName": "old"}}]}
    assert on_table(transaction, "new") == {"TransactItems": [{"Put": {"TableName": "new"}}]}
    batch = {"RequestItems": {"old": {"Keys": []}}}
    assert on_table(batch, "new") == {"RequestItems": {"new": {"Keys": []}}}


@pytest.mark.parametrize(
    "request_body",
    [
        {"TableName": "a"},
        {"TransactItems": [{"Put": {"TableName": "a"}}, {"Update": {"TableName": "a"}}]},
        {"RequestItems": {"a": []}},
    ],
)
def test_the_table_of_every_kind_of_write_is_known(request_body):
    assert tables_of(request_body) == {"a"}


def test_a_client_that_has_gone_leaves_no_trace_in_the_output(tmp_path, capfd):
    """Tests of outages and timeouts break connections; the output shows the progress of the run."""
    url = "http://127.0.0.1:9"  # nothing listens there
    with SigningHop(url, "eu-west-1", None, tmp_path / "tables", settle_s=0) as hop:
        client = socket.create_connection(("127.0.0.1", int(hop.url.rpartition(":")[2])))
        client.sendall(b"POST / HT")
        time.sleep(0.1)  # the hop is reading
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset
        time.sleep(0.1)
    assert capfd.readouterr().err == ""
