"""``zae-limiter deploy``: create or change the stack of a limiter."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.console import confirm
from zae_limiter_ops.cli.shared.errors import Interrupted, suggested
from zae_limiter_ops.cli.shared.options import output_option
from zae_limiter_ops.cli.shared.store_options import registry_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_result, print_table
from zae_limiter_ops.cli.stack.deploy_options import (
    checked_options,
    given_options,
    stack_option_flags,
)
from zae_limiter_ops.cli.stack.progress import stack_progress
from zae_limiter_ops.infra.protection import less_protection

if TYPE_CHECKING:
    from zae_limiter.models.stack import StackOptions
    from zae_limiter_ops._sync.infra.deployment import Deployed
    from zae_limiter_ops._sync.infra.stack_manager import StackChange
    from zae_limiter_ops.cli.shared.store import StackPlace, StoreLocation

DONE = {
    "created": "deployed",
    "updated": "updated",
    "unchanged": "is up to date",
    "begun": "is being deployed",
    "table": "has a table without a stack: the endpoint has no CloudFormation",
}


@click.command()
@registry_options
@stack_option_flags
@click.option("--plan", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--wait/--no-wait", default=True, help="Wait until everything is in place; default: yes."
)
@click.option(
    "--allow-less-protection",
    is_flag=True,
    help="Do not ask before a change that protects the limiter's data less than before.",
)
@output_option
def deploy(
    store: StoreLocation,
    plan: bool,
    wait: bool,
    allow_less_protection: bool,
    output: str,
    **options: Any,
) -> None:
    """Deploy a limiter, or change a deployed one.

    Creates a CloudFormation stack with the table, the functions, alarms, roles and policies,
    then brings the functions' code. On a stack that exists, an option that is not given keeps its
    value; --no-OPTION takes it away, and tags that are given replace all others. A change that
    lowers the protection of data (deletion protection, point-in-time recovery, retention,
    boundary, alarms, archive) is shown and has to be confirmed.
    A deployment that was interrupted is finished by running it again.

    \b
    Examples:
      zae-limiter deploy --name my-app --region us-east-1
      zae-limiter deploy --name my-app --lambda-memory 512 --plan
      zae-limiter deploy --name my-app --role-name-format 'pb-{}-PowerUser'

    JSON: name, stack (created, updated, unchanged, begun or table), functions, outputs;
    with --plan a list of: action, resource, type, replacement, properties.
    """
    place = store.stack()
    given = given_options(options)
    checked_options(place[0], given, None)  # wrong usage is told before anything is asked
    deployed_options = _deployed_options(place)
    wanted = checked_options(place[0], given, deployed_options)
    if not wanted.has_functions:
        print_hint(
            output,
            "note: --no-iam creates no role, so aggregator and provisioner are left out; name a "
            "role for them: --aggregator-role-arn",
        )
    lowered = [] if deployed_options is None else less_protection(deployed_options, wanted)
    if plan:
        for change in lowered:
            print_hint(output, f"less protection: {change}")
        _print_plan(output, _planned(place, wanted), place[0])
        return
    if lowered and not allow_less_protection:
        _confirm_less_protection(place[0], lowered)
    deployed, outputs = _deploy(place, wanted, wait)
    data = {
        "name": place[0],
        "stack": deployed.stack,
        "functions": list(deployed.functions),
        "outputs": outputs,
    }
    only_code = deployed.stack == "unchanged" and deployed.functions
    lines = [f"{place[0]} {DONE['updated' if only_code else deployed.stack]}"]
    lines += [f"new code: {name}" for name in deployed.functions]
    print_result(output, data, *lines)
    if deployed.stack == "begun":
        print_hint(output, f"when it is complete, finish it: {suggested('deploy')}")
    elif deployed.stack == "created":
        print_hint(output, f"next: {suggested('system', 'set-defaults', options=('-l', 'rpm:60'))}")


def _confirm_less_protection(name: str, lowered: list[str]) -> None:
    consequences = f"this protects {name!r} less than before: {'; '.join(lowered)}"
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{consequences}. There is no terminal for the question: add --allow-less-protection "
            "to confirm"
        )
    confirm(consequences, "Deploy it all the same?", yes=False)


def _deployed_options(place: StackPlace) -> StackOptions | None:
    from zae_limiter_ops._sync.infra.deployment import Deployment

    deployment = Deployment(*place)
    try:
        return deployment.options()
    finally:
        deployment.close()


def _deploy(
    place: StackPlace, options: StackOptions, wait: bool
) -> tuple[Deployed, dict[str, str]]:
    """Deploy with live progress; return what was done and the outputs of the stack."""
    from zae_limiter_ops._sync.infra.deployment import Deployment

    with stack_progress(f"deploying {place[0]}") as on_event:
        deployment = Deployment(*place, on_event=on_event)
        try:
            deployed = deployment.deploy(options, wait=wait)
            has_outputs = deployed.stack in ("created", "updated", "unchanged")
            return deployed, deployment.manager.outputs() if has_outputs else {}
        except KeyboardInterrupt:
            raise Interrupted(
                "; CloudFormation goes on with what was begun; finish it by running it again: "
                f"{suggested('deploy')}"
            ) from None
        finally:
            deployment.close()


def _planned(place: StackPlace, options: StackOptions) -> list[StackChange]:
    from zae_limiter_ops._sync.infra.deployment import Deployment

    deployment = Deployment(*place)
    try:
        return deployment.plan(options)
    finally:
        deployment.close()


def _print_plan(output: str, changes: list[StackChange], name: str) -> None:
    data = [
        {
            "action": change.action,
            "resource": change.logical_id,
            "type": change.resource_type,
            "replacement": change.replacement or None,
            "properties": list(change.details),
        }
        for change in changes
    ]
    if output == "json" or not changes:
        print_result(output, data, f"{name} is up to date: nothing would change")
        return
    print_table(
        ("action=", "resource=", "type", "replacement", "properties"),
        (
            (
                change.action,
                change.logical_id,
                change.resource_type.removeprefix("AWS::"),
                change.replacement,
                ", ".join(change.details),
            )
            for change in changes
        ),
        last_styles={"Add": "green", "Remove": "red", "Modify": "yellow", "True": "red"},
    )
