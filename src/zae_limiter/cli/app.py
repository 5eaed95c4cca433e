"""The root command, and where each command lives."""

from __future__ import annotations

import click

from zae_limiter._version import __version__
from zae_limiter.cli.errors import PROGRAM
from zae_limiter.cli.groups import HELP_NAMES, LazyGroup

# What each command is for, as its own help begins. Its module has the same name.
COMMANDS = {
    "audit": "Who changed what, and when.",
    "bucket": "Levels of the token buckets, and mending them.",
    "demo": "Watch the limiter at work on simulated LLM traffic.",
    "entity": "Keys, users, projects: who is limited, and by what.",
    "explain": "Explain what the next acquire would be answered, and why.",
    "namespace": "Isolated parts of one store, such as one for each tenant.",
    "resource": "Limits of a resource, for entities without their own.",
    "system": "Limits where no entity and no resource has its own.",
    "usage": "Who used how much, by the hour or the day.",
    "version": "Show the versions of program, Python and store.",
}


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

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
