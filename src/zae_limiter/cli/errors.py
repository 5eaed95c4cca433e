"""How commands fail: one line on stderr, and an exit code that means something."""

from __future__ import annotations

import os
from typing import Any

import click

PROGRAM = "zae-limiter"
DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class Interrupted(click.ClickException):
    """Ctrl-C; the message says what was done until then."""

    exit_code = INTERRUPTED


def run(app: click.Command) -> int:
    """Run the command line and report what goes wrong."""
    try:
        code: Any = app.main(prog_name=PROGRAM, standalone_mode=False)
    except Interrupted as error:
        return _report(f"interrupted {error.message}", INTERRUPTED)
    except click.UsageError as error:
        return _report(f"error: {_with_help(error)}", WRONG_USAGE)
    except click.ClickException as error:
        return _report(f"error: {error.format_message()}", error.exit_code)
    except click.Abort:
        return _report("interrupted", INTERRUPTED)
    except Exception as error:
        if os.environ.get("ZAEL_DEBUG") == "1":
            raise
        return _report(*_explained(error))
    return code if isinstance(code, int) else DONE


def _with_help(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else PROGRAM
    return f"{error.format_message().rstrip('.')}; see '{command} --help'"


def _explained(error: Exception) -> tuple[str, int]:
    from zae_limiter.exceptions import ValidationError, ZAELimiterError

    if isinstance(error, ValidationError):
        return f"error: {error}", WRONG_USAGE
    if isinstance(error, ZAELimiterError):
        return f"error: {error}", FAILED
    what = f"{type(error).__name__}: {error}"
    return f"error: {what}; run it again with ZAEL_DEBUG=1 and report what it prints", FAILED


def _report(message: str, code: int) -> int:
    click.echo(" ".join(message.split()), err=True)
    return code
