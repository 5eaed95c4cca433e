"""``zae-limiter entity``: create, show and delete entities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.entity.limits import delete_limits, get_limits, set_limits
from zae_limiter_ops.cli.entity.listing import list_entities, list_resources
from zae_limiter_ops.cli.entity.mode import set_mode
from zae_limiter_ops.cli.entity.parent import (
    describe_orphans,
    force_option,
    require_parent,
    set_parent,
)
from zae_limiter_ops.cli.entity.report import print_view
from zae_limiter_ops.cli.shared.console import confirm, status
from zae_limiter_ops.cli.shared.errors import Interrupted, suggested
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.options import (
    check_entity,
    check_free_text,
    entity_argument,
    if_missing_option,
    output_option,
    principal_option,
    resource_filter,
    yes_option,
)
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_result
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.entities import entity_json, view_json
from zae_limiter_ops.views.formatting import count_of

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.views.entities import EntityView


@click.group(cls=CommandGroup)
def entity() -> None:
    """Manage entities (keys, users, projects) and their limits.

    \b
    Example:
      zae-limiter entity create key-7 --parent project-1 --cascade
    """


def _parse_metadata(
    ctx: click.Context, param: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{pair!r} is not key=value", ctx, param)
        metadata[key] = text
    return metadata


@entity.command()
@entity_argument
@click.option(
    "--display-name", metavar="TEXT", callback=check_free_text, help="Name shown to people."
)
@click.option("--parent", metavar="ENTITY", callback=check_entity, help="Id of the parent entity.")
@click.option("--cascade", is_flag=True, help="Charge the parent as well, at every acquire.")
@click.option(
    "--metadata",
    "-m",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parse_metadata,
    help="A note to store with the entity; may be repeated.",
)
@force_option
@if_missing_option
@principal_option
@store_options
@output_option
def create(
    store: StoreLocation,
    entity_id: str,
    display_name: str | None,
    parent: str | None,
    cascade: bool,
    metadata: dict[str, str],
    force: bool,
    if_missing: bool,
    principal: str | None,
    output: str,
) -> None:
    """Create an entity, with a parent, a name or metadata.

    Ids have limits without being created, unless a service admits only created ids (known_only).

    \b
    Examples:
      zae-limiter entity create project-1 --display-name 'Project One'
      zae-limiter entity create key-7 --parent project-1 --cascade -m team=search

    JSON: entity_id, name, parent_id, cascade, metadata, created_at.
    """
    if cascade and parent is None:
        raise click.UsageError(
            "--cascade needs --parent: the parent is the entity that is charged as well"
        )
    with store.open(create=True) as repository:
        if if_missing and (found := repository.get_entity(entity_id)) is not None:
            print_result(
                output, entity_json(found), f"{entity_id!r} exists already, so it is kept as it is"
            )
            return
        if parent is not None and parent != entity_id and not force:
            require_parent(repository, parent)
        create_entity = repository.ensure_entity if if_missing else repository.create_entity
        created = create_entity(entity_id, display_name, parent, cascade, metadata, principal)
    under = f" under {parent!r}" if parent else ""
    cascades = ", which every acquire charges as well" if cascade else ""
    print_result(output, entity_json(created), f"created {entity_id!r}{under}{cascades}")


@entity.command("show")
@entity_argument
@resource_filter("Only this resource.")
@store_options
@output_option
def show_entity(store: StoreLocation, entity_id: str, resource: str | None, output: str) -> None:
    """Show an entity and the limits in force.

    The report names the parent, says whether the parent is registered and has limits, and names
    the configuration level of each limit.

    \b
    Examples:
      zae-limiter entity show key-7
      zae-limiter entity show key-7 --resource gpt-4

    JSON: entity_id, exists, name, parent_id, parent_exists, parent_limits (own, defaults, none,
    or null without a parent), cascade, metadata, created_at, in_force (each: entity_id, resource
    (null: any other), source (entity, entity_default, resource, system or null), limits, mode,
    mode_until, mode_source (null: no mode is set)).
    """
    from zae_limiter_ops.views.entities import view_entity

    with store.open() as repository:
        with status(f"reading {entity_id}"):
            view = view_entity(repository, entity_id, resource)
        if not view.is_known and not repository.get_buckets(entity_id):
            raise click.ClickException(_unknown(repository, entity_id))
    if output == "json":
        print_result(output, view_json(view))
    else:
        print_view(view)


for _command in (
    set_parent,
    set_mode,
    set_limits,
    get_limits,
    delete_limits,
    list_entities,
    list_resources,
):
    entity.add_command(_command)


@entity.command()
@entity_argument
@yes_option
@principal_option
@store_options
@output_option
def delete(
    store: StoreLocation, entity_id: str, yes: bool, principal: str | None, output: str
) -> None:
    """Delete an entity with its limits and buckets. Usage and audit events stay.

    \b
    Example:
      zae-limiter entity delete key-7 --yes

    JSON: entity_id, deleted.
    """
    from zae_limiter_ops.views.entities import view_entity

    with store.open() as repository:
        view = view_entity(repository, entity_id)
        buckets = {state.resource for state in repository.get_buckets(entity_id)}
        if not (view.is_known or buckets):
            raise click.ClickException(_unknown(repository, entity_id))
        orphans = describe_orphans(repository, entity_id)
        confirm(_consequences(view, buckets, orphans), "Delete it?", yes=yes)
        try:
            with status(f"deleting {entity_id}"):
                repository.delete_entity(entity_id, principal)
        except KeyboardInterrupt:
            raise Interrupted(
                f"while {entity_id!r} was being deleted; finish the deletion: "
                f"{suggested('entity', 'delete', entity_id)}"
            ) from None
    print_result(output, {"entity_id": entity_id, "deleted": True}, f"deleted {entity_id!r}")
    if yes and orphans:
        print_hint(output, f"note: {orphans}")


def _unknown(repository: SyncRepository, entity_id: str) -> str:
    from zae_limiter_ops.cli.shared.namespace_pages import Namespaces
    from zae_limiter_ops.views.names import similar_entities

    def fetch(other: SyncRepository, _size: int, _after: str | None) -> tuple[list[Any], None]:
        found = other.get_entity(entity_id)
        return ([] if found is None else [found]), None

    unknown = f"entity {entity_id!r} does not exist and has no limits or buckets"
    holders = Namespaces(repository, are_all=False).holders(fetch)
    if holders:
        return f"{unknown}; namespace {holders[0]!r} has it: use --namespace {holders[0]}"
    suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
    return unknown + (suggestion or f"; create it: {suggested('entity', 'create', entity_id)}")


def _consequences(view: EntityView, buckets: set[str], orphans: str) -> str:
    """State the consequences of deleting the entity."""
    own = sum(
        1
        for limits in view.in_force
        if limits.entity_id == view.entity_id and limits.source and limits.source.is_entity_level
    )
    left_behind = f"; {orphans}" if orphans else ""
    places, resources = count_of(own, "place"), count_of(len(buckets), "resource")
    return (
        f"This deletes {view.entity_id!r} with its own limits (in force in {places}) and its "
        f"buckets on {resources}. Usage and audit events stay; a new "
        f"acquire starts with a full bucket{left_behind}"
    )
