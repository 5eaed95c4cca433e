"""``zae-limiter system``: the limits that apply where no other limits are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter_ops.cli.shared.console import confirm
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.limit_tables import (
    LimitChange,
    report_change,
    report_limits,
    report_removal,
)
from zae_limiter_ops.cli.shared.options import (
    add_option,
    if_missing_option,
    output_option,
    principal_option,
    yes_option,
)
from zae_limiter_ops.cli.shared.param_types import optional_limits_option
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_line
from zae_limiter_ops.views.formatting import describe_limits

if TYPE_CHECKING:
    from zae_limiter.models.config import OnUnavailable
    from zae_limiter.models.limit import Limit
    from zae_limiter_ops.cli.shared.store import StoreLocation

NONE_STORED = "no system defaults are stored"


@click.group(cls=CommandGroup)
def system() -> None:
    """Manage the limits that apply where no other limits are stored.

    \b
    Example:
      zae-limiter system set-defaults -l rpm:60 -l tpm:10000
    """


@system.command("set-defaults")
@optional_limits_option
@click.option(
    "--on-unavailable",
    type=click.Choice(("allow", "block", "none")),
    help="Answer to acquires while the store is unavailable; none removes the stored policy. "
    "Default: the stored policy is kept.",
)
@add_option
@if_missing_option
@principal_option
@store_options
@output_option
def set_defaults(
    store: StoreLocation,
    limits: tuple[Limit, ...],
    on_unavailable: str | None,
    add: bool,
    if_missing: bool,
    principal: str | None,
    output: str,
) -> None:
    """Replace the system defaults.

    The command replaces all limits, or only the policy for outages if no limits are given; --add
    keeps the stored limits that are not named. A stored policy is kept unless another one is given.
    Clients apply the limits within their cache time, by default a minute.

    \b
    Examples:
      zae-limiter system set-defaults -l rpm:60 -l tpm:10000/min:15000
      zae-limiter system set-defaults -l rpd:5000/day --on-unavailable allow
      zae-limiter system set-defaults --on-unavailable block

    JSON: limits, on_unavailable (both as stored), changed, superseded (limits that no longer apply:
    limit_name, resource (null: any without defaults), source).
    """
    from zae_limiter.models.config import KEEP, OnUnavailable

    if not limits and (on_unavailable is None or if_missing):
        raise click.UsageError("give --limit, or --on-unavailable without --if-missing")
    policy = OnUnavailable(on_unavailable) if on_unavailable not in (None, "none") else None
    with store.open(create=True) as repository:
        before, _ = repository.get_system_defaults()
        if not limits and not before:
            raise click.UsageError(
                "a policy belongs to limits, and no limits are stored; give --limit"
            )
        superseded = [] if add or not limits else repository.superseded_limits(limits)
        changed = repository.set_system_defaults(
            limits or before,
            KEEP if on_unavailable is None else policy,
            principal,
            if_missing=if_missing,
            merge=add and bool(limits),
        )
        after, stored = repository.get_system_defaults()
    change = LimitChange(before, after, changed, superseded)
    report_change(output, {"on_unavailable": stored}, "system defaults", change)
    if output != "json" and on_unavailable is not None:
        _print_policy(stored)


@system.command("get-defaults")
@store_options
@output_option
def get_defaults(store: StoreLocation, output: str) -> None:
    """Show the system defaults: limits and outage policy.

    \b
    Example:
      zae-limiter system get-defaults --output json

    JSON: limits, on_unavailable.
    """
    with store.open() as repository:
        limits, policy = repository.get_system_defaults()
        if not limits:
            print_hint(output, NONE_STORED)
    report_limits(output, {"on_unavailable": policy}, limits)
    if output != "json" and limits:
        print_line("")
        _print_policy(policy)


def _print_policy(policy: OnUnavailable | None) -> None:
    print_line(f"in an outage: {policy or 'block (not set)'}")


@system.command("delete-defaults")
@yes_option
@principal_option
@store_options
@output_option
def delete_defaults(store: StoreLocation, yes: bool, principal: str | None, output: str) -> None:
    """Remove the system defaults: limits and outage policy.

    \b
    Example:
      zae-limiter system delete-defaults --yes

    JSON: deleted, limits (those that were stored).
    """
    with store.open() as repository:
        limits, _ = repository.get_system_defaults()
        if limits:
            confirm(
                f"This removes the system defaults: {describe_limits(limits)}; acquires for which "
                "no other limits are stored will fail",
                "Remove them?",
                yes=yes,
            )
            repository.delete_system_defaults(principal)
        else:
            print_hint(output, NONE_STORED)
    report_removal(output, {}, "system defaults", limits)
