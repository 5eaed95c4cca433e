"""``zae-limiter upgrade`` and ``check``: the versions of a deployed limiter and of this program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter._version import __version__
from zae_limiter_ops.cli.shared.console import confirm, status
from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.cli.shared.options import output_option, yes_option
from zae_limiter_ops.cli.shared.store_options import registry_options
from zae_limiter_ops.cli.shared.tables import print_fields, print_hint, print_result
from zae_limiter_ops.cli.stack.progress import finish_deployment, stack_progress
from zae_limiter_ops.views.formatting import count_of, format_number

if TYPE_CHECKING:
    from zae_limiter.models.backend import MigrationProgress, MigrationReport
    from zae_limiter_ops._sync.infra.deployment import Deployment
    from zae_limiter_ops.cli.shared.store import StackPlace, StoreLocation


@click.command()
@registry_options
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@yes_option
@output_option
def upgrade(store: StoreLocation, dry_run: bool, yes: bool, output: str) -> None:
    """Bring a deployed limiter to this version.

    Migrates the items of the table, then updates the stack, whose options stay as they are, and
    the code of its functions. If it is interrupted, run it again.

    \b
    Examples:
      zae-limiter upgrade --name my-app --dry-run
      zae-limiter upgrade --name my-app

    JSON: name, schema_before, schema_after, items_read, items_changed, stack (updated or
    unchanged), functions (those with new code), dry_run.
    """
    place = store.stack()
    state = _versions(place)
    if state["schema"] < state["client_schema"] and not dry_run:
        confirm(
            f"the table of {place[0]!r} has schema {state['schema']}; clients of older "
            "versions cannot open it once its migration has begun, and must be stopped first",
            "Are they stopped?",
            yes=yes,
        )
    _refuse_stuck(place)
    report = _migrate(store, dry_run)
    stack, functions = _upgrade(place, dry_run)
    data = {
        "name": place[0],
        "schema_before": report.from_version,
        "schema_after": report.to_version,
        "items_read": report.read,
        "items_changed": report.changed,
        "stack": stack or None,
        "functions": list(functions),
        "dry_run": dry_run,
    }
    print_result(output, data, *_lines(place[0], report, stack, functions))


def _refuse_stuck(place: StackPlace) -> None:
    """Fail before the migration if the stack cannot be updated after it."""
    from zae_limiter_ops._sync.infra.stack_manager import SyncStackManager

    manager = SyncStackManager(*place)
    try:
        manager.refuse_stuck()
    finally:
        manager.close()


def _upgrade(place: StackPlace, dry_run: bool) -> tuple[str, tuple[str, ...]]:
    from zae_limiter_ops._sync.infra.deployment import Deployment

    with stack_progress(f"{'planning' if dry_run else 'upgrading'} {place[0]}") as on_event:
        deployment = Deployment(*place, on_event=on_event)
        try:
            return deployment.plan_upgrade() if dry_run else deployment.upgrade()
        finally:
            deployment.close()


def _migrate(store: StoreLocation, dry_run: bool) -> MigrationReport:
    from zae_limiter._sync.repository import SyncRepository

    with status("migrating") as update:

        def progress(done: MigrationProgress) -> None:
            update(f"migrating: {count_of(done.read, 'item')} read")

        builder = SyncRepository.builder().url(store.url or f"dynamodb://{store.stack()[0]}")
        return builder.migrate(dry_run=dry_run, on_progress=progress)


def _lines(name: str, report: MigrationReport, stack: str, functions: tuple[str, ...]) -> list[str]:
    if report.from_version == report.to_version:
        lines = [f"schema {report.to_version} is current"]
    else:
        verb = "would be" if report.dry_run else "were"
        counts = f"{count_of(report.read, 'item')} read, {format_number(report.changed)} updates"
        lines = [f"schema {report.from_version} to {report.to_version}: {counts} {verb} written"]
    is_done = "would be" if report.dry_run and stack == "updated" else "is"
    lines.append(f"stack {name} {is_done} {stack}" if stack else f"{name} has no stack")
    code = "would get new code" if report.dry_run else "new code"
    return [*lines, *(f"{code}: {function}" for function in functions)]


@click.command()
@registry_options
@output_option
def check(store: StoreLocation, output: str) -> None:
    """Check that this version and a deployed limiter fit together.

    Exits with 1 if they do not, and if a deployment was interrupted before the functions had their
    code. A table that another program or another version has written is named as such; nothing is
    changed.

    \b
    Example:
      zae-limiter check --name my-app

    JSON: name, client_version, stack_version, functions_version, functions_without_code (null: not
    looked at), schema, client_schema, compatible, advice.
    """
    place = store.stack()
    state = _versions(place)
    note = state.pop("note")
    compatible, advice = _verdict(state)
    data = {"name": place[0], **state, "compatible": compatible, "advice": advice or None}
    if output == "json":
        print_result(output, data)
    else:
        print_fields(
            [
                ("client", state["client_version"]),
                ("deployed by", state["stack_version"] or "unknown"),
                ("functions", state["functions_version"] or "none"),
                ("schema", f"{state['schema']}, this version's is {state['client_schema']}"),
                ("compatible", "yes" if compatible else "no"),
            ]
        )
        for hint in (advice, note):
            if hint:
                print_hint(output, hint)
    if not compatible:
        click.get_current_context().exit(1)


def _versions(place: StackPlace) -> dict[str, Any]:
    from zae_limiter.dynamodb import table
    from zae_limiter.exceptions import InfrastructureNotFoundError
    from zae_limiter.items import version_record
    from zae_limiter_ops._sync.infra.deployment import Deployment

    deployment = Deployment(*place)
    try:
        record = deployment.existing_version_record()
        without_code, note = _functions_without_code(deployment)
    except InfrastructureNotFoundError:
        raise click.ClickException(
            f"there is no limiter named {place[0]!r}; list the limiters: {suggested('list')}"
        ) from None
    finally:
        deployment.close()
    versions = record or {}  # a new table has no record yet
    return {
        "client_version": __version__,
        "stack_version": versions.get("client_version"),
        "functions_version": versions.get(table.FUNCTIONS_VERSION),
        "functions_without_code": without_code,
        "note": note,
        "schema": table.version_of(record),
        "client_schema": version_record.SCHEMA_VERSION,
    }


def _functions_without_code(deployment: Deployment) -> tuple[list[str] | None, str]:
    """Return the functions without code; None and the reason if nobody could look at them."""
    from zae_limiter.exceptions import InfrastructureError

    try:
        return list(deployment.functions_without_code()), ""
    except InfrastructureError as error:
        return None, f"note: the functions were not looked at: {error}"


def _verdict(state: dict[str, Any]) -> tuple[bool, str]:
    """Return whether this version can use the table, and what should be done."""
    from zae_limiter._version import is_older

    if state["schema"] > state["client_schema"]:
        return False, "update zae-limiter: the table is of a newer version"
    if state["schema"] < state["client_schema"]:
        return False, f"stop older clients, then migrate: {suggested('upgrade')}"
    if state["functions_without_code"]:
        return False, finish_deployment(state["functions_without_code"])
    if is_older(state["functions_version"]):
        return True, f"functions are of an older version: {suggested('upgrade')}"
    if is_older(__version__, state["functions_version"] or __version__):
        return True, "a newer version has deployed the functions; consider updating zae-limiter"
    return True, ""
