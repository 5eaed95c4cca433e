"""Quoting of commands and names in messages, so that a reader can paste them into a shell.

Ids come from callers: without quotes, an id such as ``a'$(…)`` would become a command. In a
message, a command stands between a colon and a semicolon or the end of the line. There are no
quotes around a command, since they would end at the first quote inside.
"""

from __future__ import annotations

from collections.abc import Sequence

PROGRAM = "zae-limiter"


def command_line(*words: str, options: Sequence[str] = (), program: str = PROGRAM) -> str:
    """Return a command for a shell: the words of the command, its arguments, then its options.

    An argument that begins like an option stands behind the options and ``--``.
    """
    from shlex import join

    like_options = [position for position, word in enumerate(words) if word.startswith("-")]
    if not like_options:
        return join([program, *words, *options])
    first = like_options[0]
    return join([program, *words[:first], *options, "--", *words[first:]])


def quoted(name: str) -> str:
    """Return a name in quotes, which a shell reads as this one word."""
    from shlex import quote

    word = quote(name)
    return f"'{word}'" if word == name else word
