"""``zae-limiter entity``: who is limited, under whom, and by what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from zae_limiter.cli.completion import complete_resource
from zae_limiter.cli.consent import confirm, status
from zae_limiter.cli.groups import CommandGroup, did_you_mean
from zae_limiter.cli.options import (
    check_any_resource,
    check_entity,
    entity_argument,
    level_option,
    limits_option,
    output_option,
    principal_option,
    resource_filter,
    store_options,
    yes_option,
)
from zae_limiter.cli.tables import (
    described,
    end_json,
    hint,
    print_limits,
    print_table,
    show,
    stream_json,
)
from zae_limiter.cli.words import entity_json, limits_json, moment, on_resource

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.inspection import EntityView
    from zae_limiter.cli.store import Store
    from zae_limiter.models.limit import Limit

PAGE = 1000


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
@click.option("--display-name", metavar="TEXT", help="What people call it.")
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
        view = view_entity(repository, entity_id, resource)
        if not view.is_known and not repository.get_buckets(entity_id):
            raise click.ClickException(_unknown(repository, entity_id))
    if output == "json":
        show(output, view_json(view))
    else:
        print_view(view)


@entity.command("set-limits")
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

    On one resource, or on all others. Live buckets follow at once.

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


@entity.command("get-limits")
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


@entity.command("delete-limits")
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


@entity.command("list")
@click.option(
    "--with-custom-limits",
    metavar="RESOURCE",
    callback=check_any_resource,
    shell_complete=complete_resource,
    help="Those with limits of their own on a resource; _default_: on all others.",
)
@click.option("--parent", metavar="ENTITY", callback=check_entity, help="Those under an entity.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many.",
)
@click.option("--all", "everything", is_flag=True, help="All of them, as they are read.")
@click.option("--cursor", metavar="ID", help="Continue after this one.")
@store_options
@output_option
def list_entities(
    store: Store,
    with_custom_limits: str | None,
    parent: str | None,
    limit: int,
    everything: bool,
    cursor: str | None,
    output: str,
) -> None:
    """List entities.

    Those with limits of their own on a resource, or those under a parent.

    \b
    Examples:
      zae-limiter entity list --with-custom-limits gpt-4 --all
      zae-limiter entity list --parent project-1

    JSON: entities (each: entity_id; with --parent also name, parent_id, cascade, metadata,
    created_at), next_cursor (null at the end).
    """
    if (with_custom_limits is None) == (parent is None):
        raise click.UsageError("say which: --with-custom-limits RESOURCE or --parent ENTITY")
    with store.open() as repository:
        if parent is not None:
            _list_children(repository, parent, None if everything else limit, cursor, output)
            return
        assert with_custom_limits is not None
        ids = _Ids(repository, with_custom_limits, None if everything else limit, cursor)
        if output == "json":
            stream_json("entities", ({"entity_id": each} for page in ids for each in page))
            end_json(next_cursor=ids.next_cursor)
            return
        for page in ids:
            click.echo("\n".join(page))
        if ids.next_cursor is not None:
            hint(output, f"more: add --cursor {ids.next_cursor!r}, or --all")
        elif not ids.found:
            near = did_you_mean(with_custom_limits, repository.list_resources_with_entity_configs())
            what = on_resource(with_custom_limits)
            hint(output, f"no entity has limits of its own on {what}{near}")


@entity.command("list-resources")
@store_options
@output_option
def list_resources(store: Store, output: str) -> None:
    """List resources that entities have own limits on.

    \b
    Example:
      zae-limiter entity list-resources

    JSON: resources (names; "_default_": all others).
    """
    with store.open() as repository:
        names = repository.list_resources_with_entity_configs()
    show(output, {"resources": names}, *names)
    if not names:
        hint(output, "no entity has limits of its own")


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
        with status(f"deleting {entity_id}"):
            repository.delete_entity(entity_id, principal)
    show(output, {"entity_id": entity_id, "deleted": True}, f"deleted {entity_id!r}")


# --- inside ----------------------------------------------------------------------------------


class _Ids:
    """Pages of ids; after the last one ``next_cursor`` says where to go on."""

    def __init__(
        self, repository: SyncRepository, resource: str, limit: int | None, cursor: str | None
    ) -> None:
        self._repository = repository
        self._resource = resource
        self._limit = limit
        self.next_cursor = cursor
        self.found = 0

    def __iter__(self) -> Iterator[list[str]]:
        while self._limit is None or self.found < self._limit:
            left = PAGE if self._limit is None else min(PAGE, self._limit - self.found)
            page, self.next_cursor = self._repository.list_entities_with_custom_limits(
                self._resource, left, self.next_cursor
            )
            self.found += len(page)
            if page:
                yield page
            if self.next_cursor is None:
                return


def _list_children(
    repository: SyncRepository, parent: str, limit: int | None, cursor: str | None, output: str
) -> None:
    after = [each for each in repository.get_children(parent) if each.id > (cursor or "")]
    children = after if limit is None else after[:limit]
    next_cursor = children[-1].id if len(children) < len(after) else None
    if output == "json":
        stream_json("entities", map(entity_json, children))
        end_json(next_cursor=next_cursor)
    elif not children:
        hint(output, f"no entity is under {parent!r}")
    else:
        print_table(
            ("entity", "name", "cascade", "created="),
            (
                (child.id, child.name, "yes" if child.cascade else "no", moment(child.created_at))
                for child in children
            ),
        )
        if next_cursor is not None:
            hint(output, f"more: add --cursor {next_cursor!r}, or --all")


def _unknown(repository: SyncRepository, entity_id: str) -> str:
    from zae_limiter.cli.inspection import similar_entities

    near = did_you_mean(entity_id, similar_entities(repository, entity_id))
    return (
        f"nothing is known of entity {entity_id!r}{near}; zae-limiter entity create makes it"
        if not near
        else f"nothing is known of entity {entity_id!r}{near}"
    )


def _none_stored(repository: SyncRepository, entity_id: str, resource: str) -> str:
    where = on_resource(resource)
    near = did_you_mean(resource, repository.list_resources_with_entity_configs())
    return (
        f"{entity_id!r} has no limits of its own on {where}{near}; "
        f"what applies: zae-limiter entity show {entity_id}"
    )


def _loss(repository: SyncRepository, view: EntityView, buckets: set[str]) -> str:
    own = sum(
        1
        for each in view.in_force
        if each.entity_id == view.entity_id and each.source and each.source.is_entity_level
    )
    children = len(repository.get_children(view.entity_id))
    orphaned = f"; {children:,} entities under it keep pointing to it" if children else ""
    return (
        f"This deletes {view.entity_id!r} with its own limits (in force in {own} places) and its "
        f"buckets on {len(buckets)} resources{orphaned}. Usage and audit events stay; a new "
        "acquire starts with a full bucket"
    )
