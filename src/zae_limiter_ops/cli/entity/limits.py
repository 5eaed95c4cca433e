"""``zae-limiter entity set-limits``, ``get-limits`` and ``delete-limits``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.console import confirm
from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.cli.shared.limit_tables import (
    LimitChange,
    report_change,
    report_limits,
    report_removal,
)
from zae_limiter_ops.cli.shared.options import (
    add_option,
    entity_argument,
    if_missing_option,
    output_option,
    principal_option,
    resource_or_default_option,
    yes_option,
)
from zae_limiter_ops.cli.shared.param_types import limits_option
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint
from zae_limiter_ops.cli.shared.unknown_names import warn_unknown
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.formatting import describe_limits, describe_resource
from zae_limiter_ops.views.names import unknown_names

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.limit import Limit
    from zae_limiter_ops.cli.shared.store import StoreLocation


@click.command("set-limits")
@entity_argument
@resource_or_default_option
@limits_option
@add_option
@if_missing_option
@principal_option
@store_options
@output_option
def set_limits(
    store: StoreLocation,
    entity_id: str,
    resource: str,
    limits: tuple[Limit, ...],
    add: bool,
    if_missing: bool,
    principal: str | None,
    output: str,
) -> None:
    """Replace an entity's own limits.

    The limits apply on one resource, or on all resources on which the entity has no other limits.
    Limits in force that are not named no longer apply, also those that came from defaults; --add
    keeps them. Clients apply the limits within their cache time, by default a minute.

    \b
    Examples:
      zae-limiter entity set-limits key-7 -l rpm:100
      zae-limiter entity set-limits key-7 --resource gpt-4 -l rpm:10/sec:50 -l tpm:20000
      zae-limiter entity set-limits key-7 --resource gpt-4 -l tpm:80000 --add

    JSON: entity_id, resource ("_default_": all without their own), limits (as stored), changed,
    superseded (limits that no longer apply: limit_name, resource (null: any other), source).
    """
    with store.open(create=True) as repository:
        unknown = unknown_names(repository, entity_id, resource)
        before = repository.get_limits(entity_id, resource)
        superseded = [] if add else repository.superseded_limits(limits, entity_id, resource)
        changed = repository.set_limits(
            entity_id, limits, resource, principal, if_missing=if_missing, merge=add
        )
        after = repository.get_limits(entity_id, resource)
    subject = {"entity_id": entity_id, "resource": resource}
    label = f"{entity_id} on {describe_resource(resource)}"
    warn_unknown(output, unknown)
    report_change(output, subject, label, LimitChange(before, after, changed, superseded))


@click.command("get-limits")
@entity_argument
@resource_or_default_option
@store_options
@output_option
def get_limits(store: StoreLocation, entity_id: str, resource: str, output: str) -> None:
    """Show an entity's own limits. For the limits in force see entity show.

    \b
    Example:
      zae-limiter entity get-limits key-7 --resource gpt-4

    JSON: entity_id, resource ("_default_": all without their own), limits.
    """
    with store.open() as repository:
        limits = repository.get_limits(entity_id, resource)
        if not limits:
            print_hint(output, _none_stored(repository, entity_id, resource))
    report_limits(output, {"entity_id": entity_id, "resource": resource}, limits)


@click.command("delete-limits")
@entity_argument
@resource_or_default_option
@yes_option
@principal_option
@store_options
@output_option
def delete_limits(
    store: StoreLocation,
    entity_id: str,
    resource: str,
    yes: bool,
    principal: str | None,
    output: str,
) -> None:
    """Remove an entity's own limits.

    The limits of the next configuration level apply again.

    \b
    Example:
      zae-limiter entity delete-limits key-7 --resource gpt-4 --yes

    JSON: entity_id, resource, deleted, limits (those that were stored).
    """
    with store.open() as repository:
        limits = repository.get_limits(entity_id, resource)
        if limits:
            confirm(
                f"This removes the limits of {entity_id!r} on {describe_resource(resource)}: "
                f"{describe_limits(limits)}; the next configuration level applies again",
                "Remove them?",
                yes=yes,
            )
            repository.delete_limits(entity_id, resource, principal)
        else:
            print_hint(output, _none_stored(repository, entity_id, resource))
    report_removal(output, {"entity_id": entity_id, "resource": resource}, entity_id, limits)


def _none_stored(repository: SyncRepository, entity_id: str, resource: str) -> str:
    unknown = unknown_names(repository, entity_id, None)
    suggestion = did_you_mean(resource, repository.list_resources_with_entity_configs())
    if unknown:
        suggestion = unknown[0].suggestion
    return (
        f"{quoted(entity_id)} has no limits of its own on {describe_resource(resource)}"
        f"{suggestion}; "
        f"for the limits in force: {suggested('entity', 'show', entity_id)}"
    )
