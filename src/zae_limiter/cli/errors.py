"""How commands fail: one line on stderr that names the next step, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

PROGRAM = "zae-limiter"
WITHOUT_DYNAMODB = "or work without DynamoDB: --url sqlite:///limits.db (or ZAEL_URL)"
RIGHT_ADDRESS = "check --url or --endpoint-url, and that the server is running"
# The library's advice names Python arguments; these name the options of the command line instead.
SHELL_PHRASES = {
    "there is no such table, and provision='table' creates it": (
        "there is no such table; check --name, --region and --endpoint-url, or create it: "
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
DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130  # 130 is the shell's code for Ctrl-C


class Interrupted(click.ClickException):
    """Ctrl-C during a command; the message states what had been done."""

    exit_code = INTERRUPTED


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``" (did you mean 'demo'?)"``, or an empty text if no candidate is similar."""
    from difflib import get_close_matches

    others = [candidate for candidate in candidates if candidate != name]
    matches = " or ".join(map(repr, get_close_matches(name, others)))
    return f" (did you mean {matches}?)" if matches else ""


def run(app: click.Command, args: Sequence[str] | None = None) -> int:
    """Run the command line, by default on ``sys.argv``; report errors; return the exit code."""
    if hasattr(sys.stdout, "reconfigure"):
        # A character that the encoding of stdout lacks must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
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
        return _report(*_describe(error))
    return code if isinstance(code, int) else DONE


def _with_help(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else PROGRAM
    return f"{error.format_message().rstrip('.')}; see '{command} --help'"


def _describe(error: Exception) -> tuple[str, int]:
    """Return the line and the exit code for an error that click does not know."""
    from zae_limiter import exceptions

    if isinstance(error, exceptions.ValidationError):
        return f"error: {error}", WRONG_USAGE
    if isinstance(error, exceptions.ZAELimiterError):
        return f"error: {_in_shell_terms(error)}", FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return f"error: {error.filename}: {error.strerror}; choose another file", FAILED
    cause = f"{type(error).__name__}: {error}"
    return f"error: {cause}; run it again with ZAEL_DEBUG=1 and report what it prints", FAILED


def _in_shell_terms(error: Exception) -> str:
    """Return the message of a library error with commands and options as advice."""
    from zae_limiter import exceptions

    if isinstance(error, exceptions.NamespaceNotFoundError):
        return (
            f"namespace {error.namespace!r} is not registered; see '{PROGRAM} namespace list' and "
            f"'orphans', or register it: {PROGRAM} namespace register {error.namespace}"
        )
    if isinstance(error, exceptions.EntityExistsError):
        return (
            f"entity {error.entity_id!r} exists already; see '{PROGRAM} entity show', "
            f"or '{PROGRAM} entity delete' it first to change its parent"
        )
    if isinstance(error, exceptions.InfrastructureNotFoundError):
        if error.hint.startswith("the folder"):
            return f"no store at {error.stack_name!r}: {error.hint}, or check --url (or ZAEL_URL)"
        return f"no store named {error.stack_name!r}: {_with_shell_phrases(error.hint)}"
    message = _with_shell_phrases(str(error))
    if _is_connection_error(error):
        no_credentials = "credentials" in str(error)
        return f"{message}; {WITHOUT_DYNAMODB if no_credentials else RIGHT_ADDRESS}"
    return message


def _is_connection_error(error: Exception) -> bool:
    from zae_limiter.transport.errors import NoAnswer, NotSent

    return isinstance(error, NoAnswer | NotSent)


def _with_shell_phrases(text: str) -> str:
    for in_code, in_shell in SHELL_PHRASES.items():
        text = text.replace(in_code, in_shell)
    return text


def _report(message: str, code: int) -> int:
    click.echo(" ".join(message.split()), err=True)
    return code
