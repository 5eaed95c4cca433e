"""``zae-limiter entity``: who is limited, under whom, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.consent import confirm, status
from zae_limiter.cli.entity_limits import delete_limits, get_limits, set_limits
from zae_limiter.cli.entity_list import list_entities, list_resources
from zae_limiter.cli.errors import Interrupted
from zae_limiter.cli.groups import CommandGroup, did_you_mean
from zae_limiter.cli.options import (
    check_entity,
    check_free_text,
    entity_argument,
    output_option,
    principal_option,
    resource_filter,
    yes_option,
)
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import show
from zae_limiter.cli.words import entity_json

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.inspection import EntityView
    from zae_limiter.cli.store import Store

SEVERAL = 1000  # children that are counted


@click.group(cls=CommandGroup)
def entity() -> None:
    """Keys, users, projects: who is limited, and by what.

    \b
    Example:
      zae-limiter entity create key-7 --parent project-1 --cascade
    """


def _pair(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in value:
        key, equals, text = each.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{each!r} is not key=value", ctx, param)
        found[key] = text
    return found


@entity.command()
@entity_argument
@click.option(
    "--display-name", metavar="TEXT", callback=check_free_text, help="What people call it."
)
@click.option("--parent", metavar="ENTITY", callback=check_entity, help="Whom it belongs to.")
@click.option("--cascade", is_flag=True, help="Every acquire charges the parent as well.")
@click.option(
    "--metadata",
    "-m",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_pair,
    help="Anything worth remembering; may be repeated.",
)
@principal_option
@store_options
@output_option
def create(
    store: Store,
    entity_id: str,
    display_name: str | None,
    parent: str | None,
    cascade: bool,
    metadata: dict[str, str],
    principal: str | None,
    output: str,
) -> None:
    """Create an entity. Only one with a parent has to be created before it is limited.

    \b
    Examples:
      zae-limiter entity create project-1 --display-name 'Project One'
      zae-limiter entity create key-7 --parent project-1 --cascade -m team=search

    JSON: entity_id, name, parent_id, cascade, metadata, created_at.
    """
    if cascade and parent is None:
        raise click.UsageError("--cascade needs --parent: whom to charge as well")
    with store.open(create=True) as repository:
        made = repository.create_entity(
            entity_id, display_name, parent, cascade, metadata, principal
        )
    under = f" under {parent!r}" if parent else ""
    cascades = ", which every acquire charges as well" if cascade else ""
    show(output, entity_json(made), f"created {entity_id!r}{under}{cascades}")


@entity.command("show")
@entity_argument
@resource_filter
@store_options
@output_option
def show_entity(store: Store, entity_id: str, resource: str | None, output: str) -> None:
    """Show an entity and the limits in force.

    With its parent, and the level that each limit comes from.

    \b
    Examples:
      zae-limiter entity show key-7
      zae-limiter entity show key-7 --resource gpt-4

    JSON: entity_id, exists, name, parent_id, cascade, metadata, created_at, in_force (each:
    entity_id, resource (null: any other), source (entity, entity_default, resource, system or
    null), limits).
    """
    from zae_limiter.cli.entity_report import print_view, view_json
    from zae_limiter.cli.inspection import view_entity

    with store.open() as repository:
        with status(f"looking at {entity_id}"):
            view = view_entity(repository, entity_id, resource)
        if not view.is_known and not repository.get_buckets(entity_id):
            raise click.ClickException(_unknown(repository, entity_id))
    if output == "json":
        show(output, view_json(view))
    else:
        print_view(view)


for _command in (set_limits, get_limits, delete_limits, list_entities, list_resources):
    entity.add_command(_command)


@entity.command()
@entity_argument
@yes_option
@principal_option
@store_options
@output_option
def delete(store: Store, entity_id: str, yes: bool, principal: str | None, output: str) -> None:
    """Delete an entity with its limits and buckets. Usage and audit events stay.

    \b
    Example:
      zae-limiter entity delete key-7 --yes

    JSON: entity_id, deleted.
    """
    from zae_limiter.cli.inspection import view_entity

    with store.open() as repository:
        view = view_entity(repository, entity_id)
        buckets = {state.resource for state in repository.get_buckets(entity_id)}
        if not (view.is_known or buckets):
            raise click.ClickException(_unknown(repository, entity_id))
        confirm(_loss(repository, view, buckets), "Delete it?", yes=yes)
        try:
            with status(f"deleting {entity_id}"):
                repository.delete_entity(entity_id, principal)
        except KeyboardInterrupt:
            raise Interrupted(
                f"while {entity_id!r} was being deleted; to be sure that all of it is gone: "
                f"zae-limiter entity delete {entity_id}"
            ) from None
    show(output, {"entity_id": entity_id, "deleted": True}, f"deleted {entity_id!r}")


# --- inside ----------------------------------------------------------------------------------


def _unknown(repository: SyncRepository, entity_id: str) -> str:
    from zae_limiter.cli.inspection import similar_entities

    near = did_you_mean(entity_id, similar_entities(repository, entity_id))
    return (
        f"nothing is known of entity {entity_id!r}{near}; zae-limiter entity create makes it"
        if not near
        else f"nothing is known of entity {entity_id!r}{near}"
    )


def _loss(repository: SyncRepository, view: EntityView, buckets: set[str]) -> str:
    own = sum(
        1
        for each in view.in_force
        if each.entity_id == view.entity_id and each.source and each.source.is_entity_level
    )
    children, more = repository.list_entities(SEVERAL, parent_id=view.entity_id)
    count = f"{len(children):,}{' or more' if more else ''}"
    orphaned = f"; {count} entities under it keep pointing to it" if children else ""
    return (
        f"This deletes {view.entity_id!r} with its own limits (in force in {own} places) and its "
        f"buckets on {len(buckets)} resources{orphaned}. Usage and audit events stay; a new "
        "acquire starts with a full bucket"
    )
