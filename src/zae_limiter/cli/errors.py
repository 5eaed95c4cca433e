"""How commands fail: one line on stderr, and an exit code that means something."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

PROGRAM = "zae-limiter"
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
        hint = error.hint.partition("; pass url=")[0]
        hint = f" ({hint})" if hint else ""
        return (
            f"no store named {error.stack_name!r}{hint}; check --name, --region and "
            "--endpoint-url, or use a file: --url sqlite:///limits.db (or ZAEL_URL)"
        )
    return str(error).replace(
        "delete_namespace() it before", f"'{PROGRAM} namespace delete' before"
    )


def _report(message: str, code: int) -> int:
    click.echo(" ".join(message.split()), err=True)
    return code
