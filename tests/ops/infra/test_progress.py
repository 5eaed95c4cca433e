"""The events of a stack, as a line and as a live table."""

import pytest
from rich.console import Console

from zae_limiter_ops.cli.stack.progress import ResourceTable
from zae_limiter_ops.infra import progress
from zae_limiter_ops.infra.progress import StackEvent


def event(logical_id, status, reason="", kind="AWS::IAM::Role"):
    return StackEvent(f"{logical_id}-{status}", logical_id, kind, status, reason, "")


def test_the_first_failure_is_told_not_those_that_follow_from_it():
    events = [
        event("Table", "CREATE_IN_PROGRESS"),
        event(
            "AggregatorRole", "CREATE_FAILED", "User is not authorized to perform: iam:CreateRole"
        ),
        event("Table", "CREATE_FAILED", "Resource creation cancelled"),
        event("Later", "CREATE_FAILED", "something else"),
    ]
    line = progress.failure(events, "ROLLBACK_COMPLETE")
    assert line.startswith("AggregatorRole (AWS::IAM::Role) failed: User is not authorized")
    assert "deploy with --no-iam if it concerns IAM" in line


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("my-app already exists", "delete the existing resource, or choose another --name"),
        ("Concurrency limit exceeded", "raise the quota of the account"),
        ("", "no reason was given"),
    ],
)
def test_a_failure_says_what_to_do(reason, advice):
    assert advice in progress.failure([event("X", "CREATE_FAILED", reason)], "ROLLBACK_COMPLETE")


def test_without_a_failing_event_the_status_is_told():
    assert "ended as ROLLBACK_COMPLETE" in progress.failure([], "ROLLBACK_COMPLETE")


def test_a_review_waits_for_nothing():
    assert progress.is_settled("REVIEW_IN_PROGRESS")
    assert not progress.is_settled("CREATE_IN_PROGRESS")
    assert progress.succeeded("UPDATE_COMPLETE")
    assert not progress.succeeded("UPDATE_ROLLBACK_COMPLETE")


def test_the_live_table_shows_the_last_event_of_each_resource():
    table = ResourceTable("deploying my-app", 100)
    table.add(event("Table", "CREATE_IN_PROGRESS", kind="AWS::DynamoDB::Table"))
    table.add(event("Role", "CREATE_IN_PROGRESS"))
    table.add(event("Table", "CREATE_COMPLETE", kind="AWS::DynamoDB::Table"))
    console = Console(width=100, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(table.render())
    lines = [line.split() for line in captured.get().splitlines() if "_" in line]
    assert lines == [
        ["CREATE_COMPLETE", "Table", "DynamoDB::Table"],
        ["CREATE_IN_PROGRESS", "Role", "IAM::Role"],
    ]
    assert "deploying my-app, 0 s" in captured.get()
