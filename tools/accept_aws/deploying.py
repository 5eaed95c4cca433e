"""The stack is deployed, and a second deployment changes nothing."""

from __future__ import annotations

from tools.accept_aws.run import TAG, Run
from zae_limiter.models.stack import StackOptions


def options(run: Run) -> StackOptions:
    """Return the options of the stack: the defaults, logs of a day, and the tag of the tool."""
    return StackOptions(log_retention_days=1, tags={TAG: run.name})


def is_own(run: Run) -> bool:
    """Return whether the existing stack was made by this tool."""
    stack = run.deployment.manager.describe() or {}
    return any(each["Key"] == TAG for each in stack.get("Tags", ()))


def deploy(run: Run) -> str:
    deployed = run.deployment.deploy(options(run))
    run.is_deployed = True
    assert deployed.stack == "created", f"the stack was {deployed.stack}"
    assert len(deployed.functions) == 2, f"code was uploaded to {deployed.functions}"
    return f"code was uploaded to {', '.join(deployed.functions)}"


def deploy_again(run: Run) -> str:
    deployed = run.deployment.deploy(options(run))
    assert deployed.stack == "unchanged", f"the stack was {deployed.stack}"
    assert deployed.functions == (), f"code was uploaded again to {deployed.functions}"
    return "nothing has changed"
