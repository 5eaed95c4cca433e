"""``zae-limiter resource``: limits of a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.consent import confirm
from zae_limiter.cli.groups import CommandGroup, did_you_mean
from zae_limiter.cli.options import output_option, principal_option, resource_argument, yes_option
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import described, hint, print_limits, print_table, show
from zae_limiter.cli.values import limits_option
from zae_limiter.cli.words import limits_json, rate

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import Store
    from zae_limiter.models.limit import Limit


@click.group(cls=CommandGroup)
def resource() -> None:
    """Limits of a resource, for entities without their own.

    \b
    Example:
      zae-limiter resource set-defaults gpt-4 -l rpm:60 -l tpm:10000
    """


@resource.command("set-defaults")
@resource_argument
@limits_option
@principal_option
@store_options
@output_option
def set_defaults(
    store: Store, resource: str, limits: tuple[Limit, ...], principal: str | None, output: str
) -> None:
    """Replace the limits of a resource.

    Clients follow within their cache time: a minute, unless they chose otherwise.

    \b
    Example:
      zae-limiter resource set-defaults gpt-4 -l rpm:500 -l tpm:50000:75000

    JSON: resource, limits.
    """
    with store.open(create=True) as repository:
        before = repository.get_resource_defaults(resource)
        repository.set_resource_defaults(resource, limits, principal)
    show(
        output,
        {"resource": resource, "limits": limits_json(limits)},
        f"{resource}: {described(limits)} (before: {described(before)})",
    )


@resource.command("get-defaults")
@resource_argument
@store_options
@output_option
def get_defaults(store: Store, resource: str, output: str) -> None:
    """Show the limits of a resource.

    \b
    Example:
      zae-limiter resource get-defaults gpt-4

    JSON: resource, limits.
    """
    with store.open() as repository:
        limits = repository.get_resource_defaults(resource)
        if not limits:
            hint(output, _none_stored(repository, resource))
    if output == "json":
        show(output, {"resource": resource, "limits": limits_json(limits)})
    elif limits:
        print_limits(limits)


@resource.command("delete-defaults")
@resource_argument
@yes_option
@principal_option
@store_options
@output_option
def delete_defaults(
    store: Store, resource: str, yes: bool, principal: str | None, output: str
) -> None:
    """Remove the limits of a resource.

    Those of the system apply again.

    \b
    Example:
      zae-limiter resource delete-defaults gpt-4 --yes

    JSON: resource, deleted, limits (those that were stored).
    """
    with store.open() as repository:
        limits = repository.get_resource_defaults(resource)
        if limits:
            confirm(
                f"This removes the defaults of {resource!r}: {described(limits)}; entities "
                "without limits of their own fall back on the system defaults",
                "Remove them?",
                yes=yes,
            )
            repository.delete_resource_defaults(resource, principal)
        else:
            hint(output, _none_stored(repository, resource))
    data = {"resource": resource, "deleted": bool(limits), "limits": limits_json(limits)}
    if output == "json" or limits:
        show(output, data, f"{resource}: removed {described(limits)}")


@resource.command("list")
@store_options
@output_option
def list_resources(store: Store, output: str) -> None:
    """List the resources that have limits.

    \b
    Example:
      zae-limiter resource list

    JSON: resources (each: resource, limits).
    """
    with store.open() as repository:
        names = repository.list_resources_with_defaults()
        found = [(name, repository.get_resource_defaults(name)) for name in names]
    if output == "json":
        listed = [{"resource": name, "limits": limits_json(limits)} for name, limits in found]
        show(output, {"resources": listed})
    elif not found:
        hint(output, "no resource has defaults")
    else:
        print_table(
            ("resource", "limit", "rate>", "burst>"),
            (
                ("" if index else name, limit.name, rate(limit), f"{limit.capacity:,}")
                for name, limits in found
                for index, limit in enumerate(limits)
            ),
        )


def _none_stored(repository: SyncRepository, resource: str) -> str:
    near = did_you_mean(resource, repository.list_resources_with_defaults())
    return f"no defaults are stored for {resource!r}{near}"
