"""Everything that a run has made is deleted, and the rest is listed."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tools.accept_aws import limits_stack, policies
from tools.accept_aws.deploying import is_own
from tools.accept_aws.run import Run
from zae_limiter.exceptions import InfrastructureError
from zae_limiter_ops.transport.control import ControlError

LISTED_S = 120.0
PAUSE_S = 2.0


def delete_everything(run: Run) -> str:
    """Delete the stacks, roles, tables, log groups and the archive of the run.

    A failure does not keep the other parts from being deleted.
    """
    failures = []
    for part in (_delete_tables, policies.delete_roles, _delete_stacks, _delete_log_groups):
        try:
            part(run)
        except (InfrastructureError, TimeoutError) as error:
            failures.append(f"{part.__name__.strip('_')}: {error}")
    run.is_deployed = False
    assert not failures, "\n".join(failures)
    return "stacks, roles, tables and log groups"


def list_left_over(run: Run) -> str:
    """List the resources of the run that still exist.

    A function that ends after its stack makes its log group again, and AWS lists a deleted queue
    for up to a minute: so the list is made again for a while.
    """
    give_up_at = time.monotonic() + min(LISTED_S, run.settings.within_s)
    while run.deployment.manager.describe() is None:
        _delete_log_groups(run)
        if not any(left_over(run)) or time.monotonic() > give_up_at:
            break
        time.sleep(PAUSE_S)
    run.report.left = sorted(left_over(run))
    assert not run.report.left, f"{len(run.report.left)} resources are left: " + ", ".join(
        run.report.left
    )
    return "nothing is left"


def left_over(run: Run) -> Iterator[str]:
    """Iterate over the existing resources whose names begin with the name of the run."""
    listings = (
        ("stack", "cloudformation", "describe_stacks", "Stacks", "StackName"),
        ("function", "lambda", "list_functions", "Functions", "FunctionName"),
        ("role", "iam", "list_roles", "Roles", "RoleName"),
        ("policy", "iam", "list_policies", "Policies", "PolicyName"),
        ("bucket", "s3", "list_buckets", "Buckets", "Name"),
        ("alarm", "cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    )
    for kind, service, call, many, name in listings:
        filters = {"Scope": "Local"} if kind == "policy" else {}
        for page in run.control.pages(service, call, **filters):
            for each in page.get(many, ()):
                is_deleted = each.get("StackStatus") == "DELETE_COMPLETE"
                if each[name].startswith(run.name) and not is_deleted:
                    yield f"{kind} {each[name]}"
    for page in run.control.pages("sqs", "list_queues", QueueNamePrefix=run.name):
        yield from (f"queue {each}" for each in page.get("QueueUrls", ()))
    yield from (f"log group {each}" for each in _log_groups(run))
    ours = set(_created_tables(run))
    for page in run.control.pages("dynamodb", "list_tables"):
        for table in page["TableNames"]:
            if table in ours or table.startswith(run.name):
                yield f"table {table}"


def _delete_stacks(run: Run) -> None:
    """Delete the stack of limits, then ours; an archive with objects is emptied and deleted."""
    if is_own(run):
        limits_stack.delete(run)
        bucket = run.deployment.delete().kept_bucket
        if bucket is not None:
            _empty(run, bucket)
    run.deployment.finish_deletion()


def _empty(run: Run, bucket: str) -> None:
    for page in run.control.pages("s3", "list_object_versions", Bucket=bucket):
        for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
            version = {"Key": each["Key"], "VersionId": each["VersionId"]}
            run.control.call("s3", "delete_object", Bucket=bucket, **version)


def _delete_tables(run: Run) -> None:
    """Delete the tables that the suites have created and left."""
    for table in _created_tables(run):
        try:
            run.control.call("dynamodb", "delete_table", TableName=table)
        except ControlError as error:
            if error.code != "ResourceNotFoundException":
                raise
        run.wait_until(f"the deletion of {table}", lambda table=table: not _exists(run, table))  # type: ignore[misc]


def _exists(run: Run, table: str) -> bool:
    try:
        run.control.call("dynamodb", "describe_table", TableName=table)
    except ControlError as error:
        if error.code == "ResourceNotFoundException":
            return False
        raise
    return True


def _created_tables(run: Run) -> list[str]:
    if not run.created_tables.exists():
        return []
    return list(dict.fromkeys(run.created_tables.read_text().split()))


def _delete_log_groups(run: Run) -> None:
    for group in _log_groups(run):
        run.control.call("logs", "delete_log_group", logGroupName=group)


def _log_groups(run: Run) -> list[str]:
    prefix = f"/aws/lambda/{run.name}-"
    pages = run.control.pages("logs", "describe_log_groups", logGroupNamePrefix=prefix)
    return [group["logGroupName"] for page in pages for group in page["logGroups"]]
