"""Errors of commands: one line on stderr that names the next step, and an exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import click

from zae_limiter import exceptions
from zae_limiter.shell_words import PROGRAM
from zae_limiter_ops.views.advice import GivenOptions, in_shell_terms, with_shell_phrases

MIN_WIDTH = 20  # columns: a narrower terminal folds by itself
# Pieces of a line that are never folded: a command after a colon, a name in quotes, any word.
_QUOTED = r"""(?:'[^']*'|"[^"]*")"""
_COMMAND = re.compile(rf"""(?<=: )({PROGRAM}(?: (?:{_QUOTED}|[^\s;'"])+)+;?)""")
_WORD = re.compile(rf"""\(?{_QUOTED}(?:{_QUOTED}|[^\s'"])*|\S+""")

# Exit codes. The shell itself uses 130 for Ctrl-C.
DONE = 0
FAILED = 1
WRONG_USAGE = 2
LIMITED = 3
CHANGES = 3  # like LIMITED, the answer to a question: --exit-code, --detailed-exitcode
INTERRUPTED = 130


def suggested(*words: str, options: Sequence[str] = ()) -> str:
    """Return a command line for a hint of the command that runs now.

    ``words`` are the command and its arguments. A hint writes the command line after a colon, and
    a semicolon or the end of the hint follows it.
    """
    return given_options().command(*words, options=options)


def given_options() -> GivenOptions:
    """Return the options of the command that runs now."""
    ctx = click.get_current_context(silent=True)
    given = ctx.find_object(GivenOptions) if ctx is not None else None
    return given or GivenOptions()


class Interrupted(click.ClickException):
    """Ctrl-C during a command; the message states the progress until then."""

    exit_code = INTERRUPTED


def run(app: click.Command, args: Sequence[str] | None = None) -> int:
    """Run the command line, by default on ``sys.argv``; report errors; return the exit code."""
    if hasattr(sys.stdout, "reconfigure"):
        # A character that the encoding of stdout lacks must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    given = GivenOptions()
    try:
        code: Any = app.main(args, prog_name=PROGRAM, standalone_mode=False, obj=given)
    except Interrupted as error:
        return _report(f"interrupted {error.message}", INTERRUPTED)
    except click.UsageError as error:
        return _report(f"error: {_with_help(error)}", WRONG_USAGE)
    except click.ClickException as error:
        return _report(f"error: {error.format_message()}", error.exit_code)
    except click.Abort:
        return _report("interrupted; every change was made completely or not at all", INTERRUPTED)
    except Exception as error:
        if os.environ.get("ZAEL_DEBUG") == "1":
            raise
        return _report(*_describe(error, given))
    return code if isinstance(code, int) else DONE


def _with_help(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else PROGRAM
    text = error.format_message().rstrip(".").replace("valid integer range", "valid integer")
    return f"{text}; see '{command} --help'"


def _describe(error: Exception, given: GivenOptions) -> tuple[str, int]:
    """Return the line and the exit code for an error that click does not know."""
    if isinstance(error, exceptions.ValidationError):
        return f"error: {with_shell_phrases(str(error), given)}", WRONG_USAGE
    if isinstance(error, exceptions.ZAELimiterError):
        return f"error: {in_shell_terms(error, given)}", FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return f"error: {error.filename}: {error.strerror}; choose another file", FAILED
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"error: {error.strerror}; free some space and run the command again", FAILED
    cause = f"{type(error).__name__}: {error}"
    return f"error: {cause}; run the command again with ZAEL_DEBUG=1 and report its output", FAILED


def _report(message: str, code: int) -> int:
    from zae_limiter_ops.views.formatting import printable

    line = " ".join(line.strip() for line in message.splitlines())  # keeps the blanks of an id
    click.echo(folded(printable(line), sys.stderr), err=True)
    return code


def folded(line: str, stream: TextIO) -> str:
    """Fold a line between words at the width of a terminal; elsewhere the line stays as it is.

    Commands and quoted names stay whole, so that people can copy them.
    """
    if not stream.isatty():
        return line
    from shutil import get_terminal_size

    width = max(get_terminal_size().columns, MIN_WIDTH)
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    lines = [""]
    for piece in _pieces(line):
        longer = f"{lines[-1]} {piece}" if lines[-1] else indent + piece
        if lines[-1] and len(longer) > width:
            lines.append(indent + piece)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def _pieces(line: str) -> Iterator[str]:
    """Return the commands and words of a line, in order."""
    for position, part in enumerate(_COMMAND.split(line)):
        if position % 2:  # the texts between the commands are at even positions
            yield part
        else:
            yield from _WORD.findall(part)
