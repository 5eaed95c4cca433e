"""The root command, and where each command lives."""

from __future__ import annotations

import importlib

import click

from zae_limiter._version import __version__
from zae_limiter.cli.errors import PROGRAM

# name: module of this package; the command has the name of its module
COMMANDS = {
    "demo": "demo",
}


class LazyGroup(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"zae_limiter.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, COMMANDS[cmd_name])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = " or ".join(map(repr, get_close_matches(name, COMMANDS)))
            ctx.fail(f"No such command {name!r}" + (f" (did you mean {near}?)" if near else ""))
        return super().resolve_command(ctx, args)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, "-V", "--version", message=f"{PROGRAM} %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Exact, cheap, hierarchical rate limiting for LLM platforms and APIs.

    \b
    Example:
      zae-limiter demo        watch it work, no set-up needed

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)
