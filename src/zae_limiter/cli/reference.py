"""The reference of the command line, from the commands themselves.

``python -m zae_limiter.cli.reference > docs/cli.md`` renews the page; a test compares both.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from zae_limiter.cli.app import app
from zae_limiter.cli.errors import PROGRAM

STORE_OPTIONS = ("url", "stack", "region", "endpoint_url", "namespace")
HEAD = """\
# Command line

<!-- Made by `python -m zae_limiter.cli.reference > docs/cli.md`; a test compares. -->

Everything that the library does with limits, entities, buckets, namespaces, usage and audit events,
from the shell and on every engine. `zae-limiter` and `python -m zae_limiter` are the same.
Which command answers which question: [operations](cli-operations.md).

```bash
export ZAEL_URL=sqlite:///limits.db
zae-limiter system set-defaults -l rpm:60 -l tpm:10000
zae-limiter entity create project-1
zae-limiter entity create key-7 --parent project-1 --cascade
zae-limiter explain key-7 gpt-4 -c rpm=1 -c tpm=500
```

- **Store**: `--url` or `ZAEL_URL`; `--name` (or `ZAEL_STACK`, else `zae-limiter`), `--region` and
  `--endpoint-url` name a DynamoDB stack instead. What the command line says wins over the
  environment. A missing file is made by the commands that store something, and never by those that
  look; a missing table only by `namespace register --create-table`.
- **Namespace**: `--namespace`, `-N` or `ZAEL_NAMESPACE`, else `default`. It must be registered.
- **Output**: tables for people, in colour only on a terminal without `NO_COLOR`; `--output json`
  for programs. The fields of the JSON stand with each command: some may be added, none is removed
  or changes its meaning. Tokens are whole unless the name ends in `_milli`
  (thousandths), times are ISO 8601 in UTC, `null` stands for "none" and, as a wait, for "never".
  Limits are `name, capacity, refill_amount, refill_period_seconds`.
- **Changes** are in the audit log with `--principal` (`ZAEL_PRINCIPAL`, else the user of the
  operating system). What loses something asks first and says what; `--yes` answers for scripts.
- **Errors** are one line on stderr that says what to do next; `ZAEL_DEBUG=1` shows where they
  happened. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
- **Completion**: `eval "$(_ZAE_LIMITER_COMPLETE=bash_source zae-limiter)"` in `~/.bashrc`;
  `zsh_source` and `fish_source` likewise.
- **Pictures**: `--plot` draws in the terminal (`pip install 'zae-limiter[plot]'`), `--output png`
  and `svg` into a file (`pip install 'zae-limiter[report]'`).
"""


def reference() -> str:
    """The whole page."""
    store = f"## Options of every data command\n\n{_options(_store_options())}\n"
    return "\n".join([HEAD, store, *_sections()])


def _sections() -> Iterator[str]:
    for path, command in commands():
        if not path:
            continue
        yield f"{'#' * (len(path) + 1)} {PROGRAM} {' '.join(path)}\n"
        yield _text(command) + "\n"
        if not isinstance(command, click.Group):
            yield _usage(path, command) + "\n"
            yield _options(_own_options(command)) + "\n"


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the tree with its path, groups before their commands."""
    yield from _below(app, ())


def _below(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            if inner is not None:
                yield from _below(inner, (*path, name))


def _text(command: click.Command) -> str:
    """The help as Markdown: examples become code."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(map(_paragraph, paragraphs))


def _paragraph(text: str) -> str:
    if not text.startswith("\b\n"):
        name, colon, rest = text.partition(": ")
        return f"**JSON**: {rest}" if name == "JSON" and colon else text
    _, *lines = text.removeprefix("\b\n").splitlines()
    return "\n".join(["```bash", *(line.strip() for line in lines), "```"])


def _usage(path: tuple[str, ...], command: click.Command) -> str:
    name = " ".join((PROGRAM, *path))
    return f"`{name} {' '.join(command.collect_usage_pieces(click.Context(command)))}`"


def _options(params: list[click.Option]) -> str:
    records = (param.get_help_record(click.Context(app)) for param in params)
    lines = ["| option | |", "|---|---|"]
    lines += [f"| `{_cell(each[0])}` | {_cell(each[1])} |" for each in records if each]
    return "\n".join(lines)


def _own_options(command: click.Command) -> list[click.Option]:
    """Without those that stand once for all."""
    options = (param for param in command.params if isinstance(param, click.Option))
    return [option for option in options if option.name not in STORE_OPTIONS]


def _store_options() -> list[click.Option]:
    """As a command with all of them has them."""
    explain = app.get_command(click.Context(app), "explain")
    assert explain is not None
    options = (param for param in explain.params if isinstance(param, click.Option))
    return [option for option in options if option.name in STORE_OPTIONS]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    click.echo(reference(), nl=False)
