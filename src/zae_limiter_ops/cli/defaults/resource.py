"""``zae-limiter resource``: the default limits of resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from zae_limiter_ops.cli.shared.console import confirm, status
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.limit_tables import (
    LimitChange,
    limit_rows,
    print_limit_rows,
    report_change,
    report_limits,
    report_removal,
)
from zae_limiter_ops.cli.shared.modes import (
    NAMES,
    force_option,
    print_mode,
    report_mode,
    until_option,
    warn_of_caches,
)
from zae_limiter_ops.cli.shared.options import (
    add_option,
    if_missing_option,
    output_option,
    principal_option,
    resource_argument,
    yes_option,
)
from zae_limiter_ops.cli.shared.param_types import limits_option
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_result
from zae_limiter_ops.cli.shared.unknown_names import refuse_unknown, warn_unknown
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.formatting import NOT_REGISTERED, describe_limits, limits_json
from zae_limiter_ops.views.modes import DENY, mode_json
from zae_limiter_ops.views.names import unknown_names

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.limit import Limit
    from zae_limiter.models.switches import Switch
    from zae_limiter_ops.cli.shared.store import StoreLocation


@click.group(cls=CommandGroup)
def resource() -> None:
    """Manage the default limits of resources.

    \b
    Example:
      zae-limiter resource set-defaults gpt-4 -l rpm:60 -l tpm:10000
    """


@resource.command("set-defaults")
@resource_argument
@limits_option
@add_option
@if_missing_option
@principal_option
@store_options
@output_option
def set_defaults(
    store: StoreLocation,
    resource: str,
    limits: tuple[Limit, ...],
    add: bool,
    if_missing: bool,
    principal: str | None,
    output: str,
) -> None:
    """Replace the default limits of a resource.

    The limits apply to entities without limits of their own. Limits in force that are not named no
    longer apply, also those of the system; --add keeps them. Clients apply the limits within their
    cache time, by default a minute.

    \b
    Example:
      zae-limiter resource set-defaults gpt-4 -l rpm:500 -l tpm:50000:75000

    JSON: resource, limits (as stored), changed, superseded (limits that no longer apply:
    limit_name, resource, source).
    """
    with store.open(create=True) as repository:
        unknown = unknown_names(repository, None, resource)
        before = repository.get_resource_defaults(resource)
        superseded = [] if add else repository.superseded_limits(limits, None, resource)
        changed = repository.set_resource_defaults(
            resource, limits, principal, if_missing=if_missing, merge=add
        )
        after = repository.get_resource_defaults(resource)
    warn_unknown(output, unknown)
    change = LimitChange(before, after, changed, superseded)
    report_change(output, {"resource": resource}, resource, change)


@resource.command("get-defaults")
@resource_argument
@store_options
@output_option
def get_defaults(store: StoreLocation, resource: str, output: str) -> None:
    """Show the default limits of a resource.

    \b
    Example:
      zae-limiter resource get-defaults gpt-4

    JSON: resource, mode (null: enforce; else: mode, until), limits.
    """
    with store.open() as repository:
        limits = repository.get_resource_defaults(resource)
        switch = repository.get_mode(resource)
        if not limits:
            print_hint(output, _none_stored(repository, resource))
    report_limits(output, {"resource": resource, "mode": mode_json(switch)}, limits)
    print_mode(output, switch)


@resource.command("set-mode")
@resource_argument
@click.argument("mode", metavar="MODE", type=click.Choice(NAMES))
@until_option
@force_option
@principal_option
@store_options
@output_option
def set_mode(
    store: StoreLocation,
    resource: str,
    mode: str,
    until: str | None,
    force: bool,
    principal: str | None,
    output: str,
) -> None:
    """Enforce limits, let calls through, or reject them.

    MODE is enforce (the usual one), shadow (charge every call, reject none), bypass (count usage
    only) or deny (reject every call). The mode of an entity wins over that of a resource, but deny
    wins over all other modes. Clients apply a mode within their cache time, by default a minute. A
    resource that was never seen is denied with --force only.

    \b
    Examples:
      zae-limiter resource set-mode gpt-4 shadow
      zae-limiter resource set-mode gpt-4 deny --until 2099-01-01T00:00:00Z
      zae-limiter resource set-mode gpt-4 enforce

    JSON: resource, mode (null: enforce), until, changed.
    """
    with store.open(create=True) as repository:
        unknown = unknown_names(repository, None, resource)
        if mode == DENY:
            refuse_unknown(unknown, force=force)
        before = repository.get_mode(resource)
        changed = repository.set_mode(resource, None, mode, until, principal)  # type: ignore[arg-type]
        after = repository.get_mode(resource)
    warn_unknown(output, unknown)
    report_mode(output, {"resource": resource}, resource, (before, after), changed)
    if mode == DENY:
        warn_of_caches(output)


@resource.command("delete-defaults")
@resource_argument
@yes_option
@principal_option
@store_options
@output_option
def delete_defaults(
    store: StoreLocation, resource: str, yes: bool, principal: str | None, output: str
) -> None:
    """Remove the default limits of a resource.

    The system defaults apply again.

    \b
    Example:
      zae-limiter resource delete-defaults gpt-4 --yes

    JSON: resource, deleted, limits (those that were stored).
    """
    with store.open() as repository:
        limits = repository.get_resource_defaults(resource)
        if limits:
            confirm(
                f"This removes the defaults of {resource!r}: {describe_limits(limits)}; entities "
                "without limits of their own fall back on the system defaults",
                "Remove them?",
                yes=yes,
            )
            repository.delete_resource_defaults(resource, principal)
        else:
            print_hint(output, _none_stored(repository, resource))
    report_removal(output, {"resource": resource}, resource, limits)


@resource.command("list")
@store_options
@output_option
def list_resources(store: StoreLocation, output: str) -> None:
    """List the resources that have limits or are in use.

    The list contains resources with default limits, resources on which entities have limits of
    their own, and resources that were only used, as "in use, not registered". A resource that was
    used stays listed after its buckets have expired.

    \b
    Example:
      zae-limiter resource list

    JSON: resources (each: resource, limits (its defaults), mode (null: enforce; else: mode, until),
    registered (it has defaults or a mode, or entities have limits of their own on it)).
    """
    with store.open() as repository, status("reading which resources are in use"):
        resources = _listed_resources(repository)
    if output == "json":
        data = [
            {
                "resource": each.name,
                "limits": limits_json(each.limits),
                "mode": mode_json(each.switch),
                "registered": each.is_registered,
            }
            for each in resources
        ]
        print_result(output, {"resources": data})
    elif resources:
        rows = (row for each in resources for row in limit_rows(each.name, each.limits, each.note))
        print_limit_rows(rows, "")
    else:
        print_hint(output, "no resource has limits, and none is in use")


class ListedResource(NamedTuple):
    """A resource with its default limits.

    A resource is registered if it has defaults or a mode, or if entities have limits of their own
    on it.
    """

    name: str
    limits: list[Limit]
    is_registered: bool
    switch: Switch | None = None

    @property
    def note(self) -> str:
        """The mode, or the reason why a resource without default limits is listed."""
        if self.switch is not None:
            return f"mode: {self.switch}"
        if self.limits:
            return ""
        return "limits of entities only" if self.is_registered else NOT_REGISTERED


def _listed_resources(repository: SyncRepository) -> list[ListedResource]:
    with_defaults = repository.list_resources_with_defaults()
    registered = {*with_defaults, *repository.list_resources_with_entity_configs()}
    return [
        ListedResource(
            name,
            repository.get_resource_defaults(name) if name in with_defaults else [],
            name in registered,
            repository.get_mode(name) if name in with_defaults else None,
        )
        for name in repository.list_resources()
    ]


def _none_stored(repository: SyncRepository, resource: str) -> str:
    suggestion = did_you_mean(resource, repository.list_resources_with_defaults())
    return f"no defaults are stored for {resource!r}{suggestion}"
