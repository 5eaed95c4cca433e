"""``zae-limiter system``: limits where nothing else applies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.consent import confirm
from zae_limiter.cli.groups import CommandGroup
from zae_limiter.cli.options import output_option, principal_option, yes_option
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import described, print_limits, say, show
from zae_limiter.cli.values import limits_option
from zae_limiter.cli.words import limits_json

if TYPE_CHECKING:
    from zae_limiter.cli.store import Store
    from zae_limiter.models.limit import Limit


@click.group(cls=CommandGroup)
def system() -> None:
    """Limits where no entity and no resource has its own.

    \b
    Example:
      zae-limiter system set-defaults -l rpm:60 -l tpm:10000
    """


@system.command("set-defaults")
@limits_option
@click.option(
    "--on-unavailable",
    type=click.Choice(("allow", "block")),
    help="What an acquire does when the store does not answer.",
)
@principal_option
@store_options
@output_option
def set_defaults(
    store: Store,
    limits: tuple[Limit, ...],
    on_unavailable: str | None,
    principal: str | None,
    output: str,
) -> None:
    """Replace the system's limits.

    And the policy for outages. Clients follow within their cache time: a minute, unless they
    chose otherwise.

    \b
    Examples:
      zae-limiter system set-defaults -l rpm:60 -l tpm:10000/min:15000
      zae-limiter system set-defaults -l rpd:5000/day --on-unavailable allow

    JSON: limits, on_unavailable.
    """
    with store.open(create=True) as repository:
        before, _ = repository.get_system_defaults()
        repository.set_system_defaults(limits, on_unavailable, principal)
    show(
        output,
        {"limits": limits_json(limits), "on_unavailable": on_unavailable},
        f"system defaults: {described(limits)} (before: {described(before)})",
    )


@system.command("get-defaults")
@store_options
@output_option
def get_defaults(store: Store, output: str) -> None:
    """Show the system's limits.

    And the policy for outages.

    \b
    Example:
      zae-limiter system get-defaults --output json

    JSON: limits, on_unavailable.
    """
    with store.open() as repository:
        limits, policy = repository.get_system_defaults()
    if output == "json" or not limits:
        data = {"limits": limits_json(limits), "on_unavailable": policy}
        show(output, data, "no system defaults are stored")
        return
    print_limits(limits)
    say("")
    say(f"in an outage: {policy or 'block'}{'' if policy else ' (not set)'}")


@system.command("delete-defaults")
@yes_option
@principal_option
@store_options
@output_option
def delete_defaults(store: Store, yes: bool, principal: str | None, output: str) -> None:
    """Remove the system's limits.

    And the policy for outages.

    \b
    Example:
      zae-limiter system delete-defaults --yes

    JSON: deleted, limits (those that were stored).
    """
    with store.open() as repository:
        limits, _ = repository.get_system_defaults()
        if limits:
            confirm(
                f"This removes the system defaults: {described(limits)}; acquires that no other "
                "level covers will fail for want of limits",
                "Remove them?",
                yes=yes,
            )
            repository.delete_system_defaults(principal)
    show(
        output,
        {"deleted": bool(limits), "limits": limits_json(limits)},
        f"removed: {described(limits)}" if limits else "no system defaults were stored",
    )
