"""The root command, and where each command lives."""

from __future__ import annotations

import click

from zae_limiter._version import __version__
from zae_limiter.cli.errors import PROGRAM
from zae_limiter.cli.groups import HELP_NAMES, LazyGroup

# name: module of this package; the command has the name of its module
COMMANDS = {
    "audit": "audit",
    "bucket": "bucket",
    "demo": "demo",
    "entity": "entity",
    "explain": "explain",
    "namespace": "namespace",
    "resource": "resource",
    "system": "system",
    "usage": "usage",
    "version": "version",
}


@click.command(cls=LazyGroup, modules=COMMANDS, context_settings=HELP_NAMES)
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

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
