"""The root command, and the click groups that it and its commands are made of."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import click

from zae_limiter._version import __version__
from zae_limiter.shell_words import PROGRAM
from zae_limiter_ops.cli.errors import did_you_mean

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
# Other packages add commands here: an entry point has the name of the command.
ADDED_COMMANDS = "zae_limiter.commands"
# The first sentence of each command's help, repeated here so that listing the commands imports
# none of them. The command's module has the name of the command, unless HOMES says otherwise.
COMMANDS = {
    "audit": "Show the audit log of changes.",
    "bucket": "Show, list, reset, top up and pause token buckets.",
    "cfn-template": "Print the CloudFormation template.",
    "check": "Check that this version and a deployed limiter fit together.",
    "delete": "Delete a deployed limiter with all its data.",
    "deploy": "Deploy a limiter, or change a deployed one.",
    "entity": "Manage entities (keys, users, projects) and their limits.",
    "explain": "Explain whether the next acquire would be admitted.",
    "lambda-export": "Write the code of a function to a file.",
    "limits": "Manage limits by manifests: plan, apply, diff, export.",
    "list": "List the limiters that are deployed in a region.",
    "local": "Run a DynamoDB-compatible server on this machine.",
    "namespace": "Manage namespaces, the isolated parts of a store.",
    "resource": "Manage the default limits of resources.",
    "status": "Show stack, table, functions, alarms and cost drivers.",
    "system": "Manage the limits that apply where no others are stored.",
    "upgrade": "Bring a deployed limiter to this version.",
    "usage": "Show consumed tokens by hour, day or month.",
    "version": "Show the versions of program, Python and store.",
}


HOMES = {
    "cfn-template": "export.cfn_template",
    "check": "upgrade.check",
    "delete": "stacks.delete",
    "lambda-export": "export.lambda_export",
    "list": "stacks.list_stacks",
    "status": "stacks.status_command",
}


class CommandGroup(click.Group):
    """A group that lists its commands as defined and suggests close matches for typos."""

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


class LazyGroup(CommandGroup):
    """A group that imports a command only to run it; ``summaries`` are enough to list them.

    Commands that other packages add are imported to be listed, too.
    """

    def __init__(self, *args: Any, summaries: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._summaries = summaries

    @cached_property
    def _added(self) -> dict[str, click.Command]:
        from importlib.metadata import entry_points

        return {each.name: each.load() for each in entry_points(group=ADDED_COMMANDS)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self._summaries, *self._added])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._summaries:
            return self._added.get(cmd_name)
        module_name, _, name = HOMES.get(cmd_name, f"{cmd_name}.{cmd_name}").partition(".")
        module = importlib.import_module(f"zae_limiter_ops.cli.{module_name}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        added = {name: each.get_short_help_str(80) for name, each in self._added.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**self._summaries, **added}.items()))


@click.command(cls=LazyGroup, summaries=COMMANDS, context_settings=HELP_NAMES)
@click.version_option(__version__, "-V", "--version", message=f"{PROGRAM} %(version)s")
def app() -> None:
    """Exact, cheap, hierarchical rate limiting for LLM platforms and APIs.

    \b
    Examples:
      zae-limiter demo        watch it work, no set-up needed
      export ZAEL_URL=sqlite:///limits.db
      zae-limiter system set-defaults -l rpm:60 -l tpm:10000
      zae-limiter explain key-1 gpt-4 -c tpm=500

    \b
    Tab completion, for bash (zsh and fish likewise):
      eval "$(_ZAE_LIMITER_COMPLETE=bash_source zae-limiter)"

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 limited (explain --exit-code)
    or changes (limits --detailed-exitcode), 130 interrupted.
    """
