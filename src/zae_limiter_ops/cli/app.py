"""The root command. It imports its own commands only to run them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import click

from zae_limiter._version import __version__
from zae_limiter.shell_words import PROGRAM
from zae_limiter_ops.cli.shared.groups import CommandGroup

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
# Other packages add commands with entry points of this group, named like the command.
ADDED_COMMANDS = "zae_limiter.commands"


class RootCommand(NamedTuple):
    """A command of the root: its module, its name in that module, and a summary.

    The summary repeats the first sentence of the command's help, so that listing the commands
    imports none of them.
    """

    module: str
    name: str
    summary: str


COMMANDS = {
    "audit": RootCommand(
        "audit", "audit", "Show the audit log of changes, and complete its archive."
    ),
    "bucket": RootCommand(
        "bucket.commands", "bucket", "Show, list, reset, top up and pause token buckets."
    ),
    "budget": RootCommand(
        "budget.commands", "budget", "Show budgets: the spending, the rest, and how long it lasts."
    ),
    "cfn-template": RootCommand(
        "stack.export", "cfn_template", "Print the CloudFormation template."
    ),
    "check": RootCommand(
        "stack.upgrade", "check", "Check that this version and a deployed limiter fit together."
    ),
    "delete": RootCommand("stack.stacks", "delete", "Delete a deployed limiter with all its data."),
    "deploy": RootCommand("stack.deploy", "deploy", "Deploy a limiter, or change a deployed one."),
    "entity": RootCommand(
        "entity.commands", "entity", "Manage entities (keys, users, projects) and their limits."
    ),
    "explain": RootCommand(
        "explain.commands", "explain", "Explain whether the next acquire would be admitted."
    ),
    "lambda-export": RootCommand(
        "stack.export", "lambda_export", "Write the code of a function to a file."
    ),
    "limits": RootCommand(
        "limits.commands", "limits", "Manage limits by manifests: plan, apply, diff, export."
    ),
    "list": RootCommand(
        "stack.stacks", "list_stacks", "List the limiters that are deployed in a region."
    ),
    "local": RootCommand(
        "local.commands", "local", "Run a DynamoDB-compatible server on this machine."
    ),
    "namespace": RootCommand(
        "namespace.commands", "namespace", "Manage namespaces, the isolated parts of a store."
    ),
    "resource": RootCommand(
        "defaults.resource", "resource", "Manage the default limits of resources."
    ),
    "status": RootCommand(
        "stack.stacks", "status_command", "Show stack, table, functions, alarms and cost drivers."
    ),
    "system": RootCommand(
        "defaults.system",
        "system",
        "Manage the limits that apply where no other limits are stored.",
    ),
    "upgrade": RootCommand("stack.upgrade", "upgrade", "Bring a deployed limiter to this version."),
    "usage": RootCommand("usage.commands", "usage", "Show consumed tokens by hour, day or month."),
    "version": RootCommand("version", "version", "Show the versions of program, Python and store."),
    "watch": RootCommand(
        "watch.commands", "watch", "Print thresholds of quotas and budgets as they are raised."
    ),
}


class LazyGroup(CommandGroup):
    """A group that imports one of its commands only to run that command.

    Commands of other packages are imported for the list of commands, too.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, RootCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    @cached_property
    def _added(self) -> dict[str, click.Command]:
        from importlib.metadata import entry_points

        return {each.name: each.load() for each in entry_points(group=ADDED_COMMANDS)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self._lazy, *self._added])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        listed = self._lazy.get(cmd_name)
        if listed is None:
            return self._added.get(cmd_name)
        module = importlib.import_module(f"zae_limiter_ops.cli.{listed.module}")
        command: click.Command = getattr(module, listed.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = {name: each.summary for name, each in self._lazy.items()}
        added = {name: each.get_short_help_str(80) for name, each in self._added.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**summaries, **added}.items()))


@click.command(cls=LazyGroup, lazy=COMMANDS, context_settings=HELP_NAMES)
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

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 limited (explain --exit-code,
    budget list --exit-code) or changes (limits --detailed-exitcode), 130 interrupted.
    """
