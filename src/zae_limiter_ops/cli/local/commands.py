"""``zae-limiter local up`` and ``down``: a DynamoDB-compatible server on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from zae_limiter.naming import check_stack_name
from zae_limiter_ops.cli.local.status import print_env, print_logs, show_status, status_fields
from zae_limiter_ops.cli.shared.console import confirm, status
from zae_limiter_ops.cli.shared.errors import Interrupted
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.options import output_option, validation_callback, yes_option
from zae_limiter_ops.cli.shared.tables import print_fields, print_hint, print_result

if TYPE_CHECKING:
    from zae_limiter_ops.local.records import ServerRecord
    from zae_limiter_ops.local.service import LocalService

# These values repeat those of zae_limiter_ops.local, which --help must not import.
ENGINES = ("dynoxide", "ministack")
PORT = 4566


@click.group(cls=CommandGroup)
def local() -> None:
    """Run a DynamoDB-compatible server on this machine.

    \b
    Examples:
      zae-limiter local up --name my-app
      eval "$(zae-limiter local env)"
      zae-limiter local logs --follow
      zae-limiter local down
    """


@local.command("up")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="Server to run: dynoxide (DynamoDB, default) or ministack (also stacks and functions).",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Port to listen on, on this machine only; default: {PORT}.",
)
@click.option(
    "--name",
    "-n",
    metavar="STACK",
    callback=validation_callback(check_stack_name),
    help="Provision a limiter of this name: its stack, or its table if the server has no stacks.",
)
@output_option
def start(engine: str | None, port: int | None, name: str | None, output: str) -> None:
    """Start the server, and provision a limiter on it.

    The server goes on running after the command. If it is running already, nothing happens; after
    a crash, it is started with the same options. A server that is not installed is fetched once:
    dynoxide through npm, ministack from PyPI. The tables of dynoxide are in a file, which even
    'kill -9' does not harm; ministack loses all data when it stops.

    \b
    Examples:
      zae-limiter local up
      zae-limiter local up --name my-app
      zae-limiter local up --engine ministack --name my-app --port 8000

    JSON: the fields of 'local status', and started.
    """
    from zae_limiter_ops.local.service import WantedServer
    from zae_limiter_ops.local.status import describe

    with _service(output, "starting the server") as service:
        record, is_new = service.up(WantedServer(engine, port))
    if name is not None:
        _provision(record, name)
        service.note_stack(name)
    found = service.status()
    data = {**describe(found, service.log), "started": is_new}
    if output == "json":
        print_result(output, data)
        return
    print_result(output, data, f"{record.engine} {'is running' if is_new else 'was running'}")
    print_fields(status_fields(data))
    print_hint(output, 'next: eval "$(zae-limiter local env)"')


@contextmanager
def _service(output: str, text: str) -> Iterator[LocalService]:
    """Yield the service. Its progress is live on a terminal, and a line per step elsewhere."""
    from zae_limiter_ops.local.service import LocalService

    with status(text) as update:
        report: Callable[[str], None] = update
        if not sys.stderr.isatty():

            def report(step: str) -> None:
                print_hint(output, step)

        try:
            yield LocalService(report)
        except KeyboardInterrupt:
            raise Interrupted("before it was done; run the command again") from None


def _provision(record: ServerRecord, name: str) -> None:
    """Deploy the stack of a limiter, or create its table where the server has no stacks."""
    from contextlib import nullcontext

    from zae_limiter.models.stack import StackOptions
    from zae_limiter_ops._sync.infra.deployment import Deployment
    from zae_limiter_ops.cli.stack.progress import stack_progress
    from zae_limiter_ops.local import REGION, server_url

    title = f"deploying {name}"
    with stack_progress(title) if sys.stderr.isatty() else nullcontext() as on_event:
        deployment = Deployment(name, REGION, server_url(record.port), on_event=on_event)
        try:
            if record.has_stacks:
                deployment.deploy(StackOptions())
            else:
                deployment.deploy_table(StackOptions())
        finally:
            deployment.close()


@local.command("down")
@click.option(
    "--delete-data", is_flag=True, help="Delete the tables of local servers with all their data."
)
@yes_option
@output_option
def stop(delete_data: bool, yes: bool, output: str) -> None:
    """Stop the server that 'local up' has started.

    The tables are kept if the server has a file for them. A server that was started in
    another way keeps running.

    \b
    Examples:
      zae-limiter local down
      zae-limiter local down --delete-data --yes

    JSON: engine, stopped, kept, deleted.
    """
    if delete_data:
        confirm(
            "This deletes the tables of local servers with all limits, buckets and usage in them. "
            "It cannot be undone",
            "Delete them?",
            yes=yes,
        )
    with _service(output, "stopping the server") as service:
        record, was_running = service.down()
        deleted = service.delete_data() if delete_data else []
    kept = None if delete_data or record is None else record.data
    data = {
        "engine": record.engine if record is not None else None,
        "stopped": was_running,
        "kept": kept,
        "deleted": deleted,
    }
    lines = [f"{record.engine} is stopped" if record and was_running else _nothing(record)]
    lines += [f"deleted: {path}" for path in deleted]
    print_result(output, data, *lines)
    if kept is not None:
        print_hint(output, f"its tables are kept: {kept}")


def _nothing(record: ServerRecord | None) -> str:
    return "no local server is running" if record is None else f"{record.engine} had ended before"


local.add_command(show_status)
local.add_command(print_logs)
local.add_command(print_env)
