"""``zae-limiter entity set-limits``, ``get-limits`` and ``delete-limits``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.consent import confirm
from zae_limiter.cli.groups import did_you_mean
from zae_limiter.cli.options import (
    entity_argument,
    level_option,
    output_option,
    principal_option,
    yes_option,
)
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import described, hint, print_limits, show
from zae_limiter.cli.values import limits_option
from zae_limiter.cli.words import limits_json, on_resource

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import Store
    from zae_limiter.models.limit import Limit


@click.command("set-limits")
@entity_argument
@level_option
@limits_option
@principal_option
@store_options
@output_option
def set_limits(
    store: Store,
    entity_id: str,
    resource: str,
    limits: tuple[Limit, ...],
    principal: str | None,
    output: str,
) -> None:
    """Replace an entity's own limits.

    On one resource, or on all others. Clients follow within their cache time: a minute, unless
    they chose otherwise.

    \b
    Examples:
      zae-limiter entity set-limits key-7 -l rpm:100
      zae-limiter entity set-limits key-7 --resource gpt-4 -l rpm:10/sec:50 -l tpm:20000

    JSON: entity_id, resource ("_default_": all others), limits.
    """
    with store.open(create=True) as repository:
        before = repository.get_limits(entity_id, resource)
        repository.set_limits(entity_id, limits, resource, principal)
    show(
        output,
        {"entity_id": entity_id, "resource": resource, "limits": limits_json(limits)},
        f"{entity_id} on {on_resource(resource)}: {described(limits)} "
        f"(before: {described(before)})",
    )


@click.command("get-limits")
@entity_argument
@level_option
@store_options
@output_option
def get_limits(store: Store, entity_id: str, resource: str, output: str) -> None:
    """Show an entity's own limits. What applies in the end: entity show.

    \b
    Example:
      zae-limiter entity get-limits key-7 --resource gpt-4

    JSON: entity_id, resource ("_default_": all others), limits.
    """
    with store.open() as repository:
        limits = repository.get_limits(entity_id, resource)
        if not limits:
            hint(output, _none_stored(repository, entity_id, resource))
    if output == "json":
        show(output, {"entity_id": entity_id, "resource": resource, "limits": limits_json(limits)})
    elif limits:
        print_limits(limits)


@click.command("delete-limits")
@entity_argument
@level_option
@yes_option
@principal_option
@store_options
@output_option
def delete_limits(
    store: Store, entity_id: str, resource: str, yes: bool, principal: str | None, output: str
) -> None:
    """Remove an entity's own limits.

    The next level applies again.

    \b
    Example:
      zae-limiter entity delete-limits key-7 --resource gpt-4 --yes

    JSON: entity_id, resource, deleted, limits (those that were stored).
    """
    with store.open() as repository:
        limits = repository.get_limits(entity_id, resource)
        if limits:
            confirm(
                f"This removes the limits of {entity_id!r} on {on_resource(resource)}: "
                f"{described(limits)}; it falls back on the next level",
                "Remove them?",
                yes=yes,
            )
            repository.delete_limits(entity_id, resource, principal)
        else:
            hint(output, _none_stored(repository, entity_id, resource))
    data = {
        "entity_id": entity_id,
        "resource": resource,
        "deleted": bool(limits),
        "limits": limits_json(limits),
    }
    if output == "json" or limits:
        show(output, data, f"{entity_id}: removed {described(limits)}")


def _none_stored(repository: SyncRepository, entity_id: str, resource: str) -> str:
    where = on_resource(resource)
    near = did_you_mean(resource, repository.list_resources_with_entity_configs())
    return (
        f"{entity_id!r} has no limits of its own on {where}{near}; "
        f"what applies: zae-limiter entity show {entity_id}"
    )
