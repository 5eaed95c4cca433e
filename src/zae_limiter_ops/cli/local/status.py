"""``zae-limiter local status``, ``logs`` and ``env``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.errors import DONE, FAILED, Interrupted
from zae_limiter_ops.cli.shared.options import output_option
from zae_limiter_ops.cli.shared.tables import print_fields, print_line, print_result
from zae_limiter_ops.views.formatting import format_duration

if TYPE_CHECKING:
    from zae_limiter_ops.local.records import ServerRecord
    from zae_limiter_ops.local.service import LocalService

MOST_LINES = 1_000_000  # the lines are held in memory
LAST_LINES = 5  # of the log of a server that has ended


@click.command("status")
@output_option
@click.pass_context
def show_status(ctx: click.Context, output: str) -> None:
    """Show which server runs, and whether it answers.

    The command exits with 1 if no server runs, or if the server does not answer.

    \b
    Example:
      zae-limiter local status

    JSON: state (running, not answering, ended or stopped), engine, version, url, port, pid,
    started_at, answers_in_ms, stacks, data, log.
    """
    from zae_limiter_ops.local.service import LocalService
    from zae_limiter_ops.local.status import describe

    service = LocalService()
    found = service.status()
    data = describe(found, service.log)
    if output == "json":
        print_json(data)
    elif found.state == "stopped":
        raise click.ClickException("no local server is running; start one: zae-limiter local up")
    else:
        print_fields(status_fields(data))
        if found.state == "ended":
            _explain_end(service)
    ctx.exit(DONE if found.state == "running" else FAILED)


def status_fields(data: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the fields of a status, for people."""
    answers = data["answers_in_ms"]
    since_s = time.time() - datetime.fromisoformat(data["started_at"]).timestamp()
    return [
        ("server", f"{data['engine']} {data['version']}, process {data['pid']}"),
        ("state", data["state"] + (f", answers in {answers:g} ms" if answers is not None else "")),
        ("url", data["url"]),
        ("started", f"{format_duration(int(since_s))} ago" if since_s >= 1 else "just now"),
        ("limiters", ", ".join(data["stacks"]) or None),
        ("data", data["data"] or "in memory, until the server stops"),
        ("log", data["log"]),
    ]


def _explain_end(service: LocalService) -> None:
    """Print the last lines of the log of a server that has ended by itself."""
    from zae_limiter_ops.local.logs import last_lines

    for line in last_lines(service.log, LAST_LINES):
        print_line(f"  {line}")


@click.command("logs")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the server ends.")
@click.option(
    "--lines",
    type=click.IntRange(0, MOST_LINES),
    default=100,
    show_default=True,
    help="Number of lines to begin with, from the end of the log.",
)
def print_logs(follow: bool, lines: int) -> None:
    """Print the log of the server.

    The log is kept after the server has ended. A log of more than 5 MiB begins anew at the next
    start.

    \b
    Examples:
      zae-limiter local logs
      zae-limiter local logs --follow --lines 0
    """
    from zae_limiter_ops.local.service import LocalService

    service = LocalService()
    record = service.status().record
    try:
        _print_log(service, record, lines, follow=follow)
    except KeyboardInterrupt:
        raise Interrupted("while reading the log; the server goes on") from None


def _print_log(
    service: LocalService, record: ServerRecord | None, lines: int, *, follow: bool
) -> None:
    from zae_limiter_ops.local import logs

    if not service.log.exists():
        raise click.ClickException("there is no log yet; start a server: zae-limiter local up")
    if follow and record is not None:
        for text in logs.follow(service.log, lines, lambda: service.is_running(record)):
            click.echo(text, nl=False)
    else:
        for line in logs.last_lines(service.log, lines):
            click.echo(line)


@click.command("env")
@click.option(
    "--output",
    type=click.Choice(("shell", "json")),
    default="shell",
    show_default=True,
    help="Output format: commands for a shell, JSON for programs.",
)
def print_env(output: str) -> None:
    """Print the variables that lead clients to the server.

    ZAEL_URL names the limiter that was provisioned last. In JSON, null stands for a variable that
    must not be set.

    \b
    Examples:
      zae-limiter local env
      zae-limiter local env --output json

    In a shell: eval "$(zae-limiter local env)"
    """
    from zae_limiter_ops.local import client_variables
    from zae_limiter_ops.local.service import LocalService

    record = LocalService().running()
    stack = record.stacks[-1] if record.stacks else None
    variables = client_variables(record.port, stack)
    print_result(output, variables, *_shell_lines(variables.items()))


def _shell_lines(variables: Iterable[tuple[str, str | None]]) -> Iterable[str]:
    from shlex import quote

    for name, value in variables:
        if value is not None:
            yield f"export {name}={quote(value)}"
        elif name in os.environ:
            yield f"unset {name}"
