"""Groups of commands: which names they know, and which one was meant."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import click

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``" (did you mean 'demo'?)"``, or nothing."""
    from difflib import get_close_matches

    near = " or ".join(map(repr, get_close_matches(name, [each for each in known if each != name])))
    return f" (did you mean {near}?)" if near else ""


class CommandGroup(click.Group):
    """Lists its commands in the order of their definition, and suggests the one that was meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command: the help, as wrong usage."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}{did_you_mean(name, known)}")
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """Imports a command when it is asked for; to list them, their summaries are enough."""

    def __init__(self, *args: Any, summaries: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._summaries:
            return None
        module = importlib.import_module(f"zae_limiter.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self._summaries.items()))
