"""How commands fail: one line on stderr, and an exit code that means something."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

PROGRAM = "zae-limiter"
WITHOUT_DYNAMODB = "or work without DynamoDB: --url sqlite:///limits.db (or ZAEL_URL)"
RIGHT_ADDRESS = "check --url or --endpoint-url, and that the server is running"
# What the library tells programmers to write, and what there is at a shell.
PHRASES = {
    "there is no such table, and provision='table' makes it": (
        "there is no such table; check --name, --region and --endpoint-url, or make it: "
        f"{PROGRAM} namespace register default --create-table"
    ),
    "; pass url='sqlite:///limits.db' or 'memory://' to work without DynamoDB": (
        f"; {WITHOUT_DYNAMODB}"
    ),
    "a profile or a role, or region=": "a profile or a role, or give --region",
    "pass region=, or set": "give --region, or set",
    "check endpoint_url": "check --endpoint-url",
    "delete_namespace() it before": f"'{PROGRAM} namespace delete' before",
}
DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class Interrupted(click.ClickException):
    """Ctrl-C; the message says what was done until then."""

    exit_code = INTERRUPTED


def run(app: click.Command, args: Sequence[str] | None = None) -> int:
    """Run the command line, by default on ``sys.argv``, and report what goes wrong."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # what cannot be shown ends no command
    try:
        code: Any = app.main(args, prog_name=PROGRAM, standalone_mode=False)
    except Interrupted as error:
        return _report(f"interrupted {error.message}", INTERRUPTED)
    except click.UsageError as error:
        return _report(f"error: {_with_help(error)}", WRONG_USAGE)
    except click.ClickException as error:
        return _report(f"error: {error.format_message()}", error.exit_code)
    except click.Abort:
        return _report("interrupted; every change is made whole or not at all", INTERRUPTED)
    except Exception as error:
        if os.environ.get("ZAEL_DEBUG") == "1":
            raise
        return _report(*_explained(error))
    return code if isinstance(code, int) else DONE


def _with_help(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else PROGRAM
    return f"{error.format_message().rstrip('.')}; see '{command} --help'"


def _explained(error: Exception) -> tuple[str, int]:
    from zae_limiter import exceptions

    if isinstance(error, exceptions.ValidationError):
        return f"error: {error}", WRONG_USAGE
    if isinstance(error, exceptions.ZAELimiterError):
        return f"error: {_in_commands(error)}", FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return f"error: {error.filename}: {error.strerror}; choose another file", FAILED
    what = f"{type(error).__name__}: {error}"
    return f"error: {what}; run it again with ZAEL_DEBUG=1 and report what it prints", FAILED


def _in_commands(error: Exception) -> str:
    """What the library says to programmers, said to somebody at a shell."""
    from zae_limiter import exceptions

    if isinstance(error, exceptions.NamespaceNotFoundError):
        return (
            f"namespace {error.namespace!r} is not registered; see '{PROGRAM} namespace list' and "
            f"'orphans', or make it: {PROGRAM} namespace register {error.namespace}"
        )
    if isinstance(error, exceptions.EntityExistsError):
        return (
            f"entity {error.entity_id!r} exists already; see '{PROGRAM} entity show', "
            f"or '{PROGRAM} entity delete' it first to change its parent"
        )
    if isinstance(error, exceptions.InfrastructureNotFoundError):
        if error.hint.startswith("the folder"):
            return f"no store at {error.stack_name!r}: {error.hint}, or check --url (or ZAEL_URL)"
        return f"no store named {error.stack_name!r}: {_in_shell(error.hint)}"
    if _is_of_the_wire(error):
        missing = "credentials" in str(error)
        return f"{_in_shell(str(error))}; {WITHOUT_DYNAMODB if missing else RIGHT_ADDRESS}"
    return _in_shell(str(error))


def _is_of_the_wire(error: Exception) -> bool:
    from zae_limiter.transport.errors import NoAnswer, NotSent

    return isinstance(error, NoAnswer | NotSent)


def _in_shell(text: str) -> str:
    for in_code, said in PHRASES.items():
        text = text.replace(in_code, said)
    return text


def _report(message: str, code: int) -> int:
    click.echo(" ".join(message.split()), err=True)
    return code
