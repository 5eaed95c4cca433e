"""The click group that all groups of commands use."""

from __future__ import annotations

import click

from zae_limiter_ops.views.advice import did_you_mean


class CommandGroup(click.Group):
    """A group that lists its commands in the order of their definition.

    The group suggests similar commands for a mistyped one.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help and exit with 2 if no command is given."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, commands = args[0], self.list_commands(ctx)
        if name not in commands and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}{did_you_mean(name, commands)}")
        return super().resolve_command(ctx, args)
