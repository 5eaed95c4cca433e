"""Modes of resources and entities: the arguments of the commands that set them, and their text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.options import validation_callback
from zae_limiter_ops.cli.shared.tables import print_hint, print_line, print_result
from zae_limiter_ops.views.modes import DENY, describe_mode, mode_json

if TYPE_CHECKING:
    from zae_limiter.models.switches import Switch

INHERIT = "inherit"  # removes the mode of an entity
# The same names as in zae_limiter.models.switches, which the help must not import.
NAMES = ("enforce", "shadow", "bypass", DENY)


def _until(value: str | None) -> str | None:
    if value is not None:
        from zae_limiter.models.switches import check_until

        check_until(value)
    return value


until_option = click.option(
    "--until",
    metavar="TIME",
    callback=validation_callback(_until),
    help="End of the mode as ISO time, such as 2026-12-01T09:00:00Z; default: no end.",
)
force_option = click.option(
    "--force", is_flag=True, help="Deny a key or a resource that was never seen."
)


def print_mode(output: str, switch: Switch | None) -> None:
    """Print a stored mode for people, if one is set."""
    if output == "table" and switch is not None:
        print_line(f"mode: {switch}")


def report_mode(
    output: str,
    subject: dict[str, Any],
    label: str,
    modes: tuple[Switch | None, Switch | None],
    changed: bool,
) -> None:
    """Print the mode after a command has set it; ``modes`` are those before and after."""
    before, after = modes
    earlier = f"before: {describe_mode(before)}" if changed else "unchanged"
    fields = {**subject, **(mode_json(after) or {"mode": None, "until": None})}
    text = f"{label}: {describe_mode(after)} ({earlier})"
    print_result(output, {**fields, "changed": changed}, text)


def warn_of_caches(output: str, advice: str = "") -> None:
    """Say how long the calls of other processes may go on after a deny."""
    from zae_limiter.settings import Settings

    print_hint(
        output,
        "other processes may admit calls for the rest of their config_cache_ttl, "
        f"{Settings().config_cache_ttl:g} s by default{advice}",
    )
