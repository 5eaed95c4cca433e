"""A stack whose one resource is a manifest of limits."""

from __future__ import annotations

import json
from typing import Any

from tools.accept_aws.run import Run
from zae_limiter import SyncRepository
from zae_limiter_ops.infra.provisioner import limits_template
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.transport.control import ControlError

RESOURCE = "accept-limits"


def stack_name(run: Run) -> str:
    return f"{run.name}-limits"


def change_limits(run: Run) -> str:
    """Create the stack, update it, let an update fail, and delete it."""
    with SyncRepository.open(**run.opening) as repository:

        def require(rpm: int | None) -> None:
            limits = repository.get_resource_defaults(RESOURCE)
            found = limits[0].capacity if limits else None
            assert found == rpm, f"the limit is {found} instead of {rpm}"

        _change(run, "create_stack", _body(run, 500), "CREATE_COMPLETE")
        require(500)
        _change(run, "update_stack", _body(run, 600), "UPDATE_COMPLETE")
        require(600)
        wrong = _body(run, 700)
        wrong["Resources"]["Limits"]["Properties"]["Manifest"]["entities"] = {
            "a": {"cascade": "no"}
        }
        _change(run, "update_stack", wrong, "UPDATE_ROLLBACK_COMPLETE")
        require(600)
        reasons = _reasons(run)
        assert any("must be true or false" in each for each in reasons), f"reasons: {reasons}"
        delete(run)
        require(None)
    return "created, updated, rolled back with its reason, and deleted"


def delete(run: Run) -> None:
    """Delete the stack, if it exists, and wait for it."""
    run.control.call("cloudformation", "delete_stack", StackName=stack_name(run))
    run.wait_until("the deletion of the limits", lambda: _status(run) in (None, "DELETE_COMPLETE"))


def _body(run: Run, rpm: int) -> dict[str, Any]:
    resources = {RESOURCE: {"limits": {"rpm": {"capacity": rpm}}}}
    return limits_template(run.name, LimitsManifest.from_dict({"resources": resources}))


def _change(run: Run, call: str, body: dict[str, Any], expected: str) -> None:
    name = stack_name(run)
    run.control.call("cloudformation", call, StackName=name, TemplateBody=json.dumps(body))
    run.wait_until(f"{expected} of the limits", lambda: _is_settled(_status(run)))
    status = _status(run)
    assert status == expected, f"the stack is {status}: {_reasons(run)}"


def _is_settled(status: str | None) -> bool:
    return status is None or not status.endswith("_IN_PROGRESS")


def _status(run: Run) -> str | None:
    try:
        answer = run.control.call("cloudformation", "describe_stacks", StackName=stack_name(run))
    except ControlError as error:
        if "does not exist" in error.reason:
            return None
        raise
    return str(answer["Stacks"][0]["StackStatus"])


def _reasons(run: Run) -> list[str]:
    events = run.control.call("cloudformation", "describe_stack_events", StackName=stack_name(run))
    reasons = (event.get("ResourceStatusReason", "") for event in events["StackEvents"])
    return [reason for reason in reasons if reason]
