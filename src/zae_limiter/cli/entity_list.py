"""``zae-limiter entity list`` and ``list-resources``: pages of as many as there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.completion import complete_entity, complete_resource
from zae_limiter.cli.groups import did_you_mean
from zae_limiter.cli.options import (
    check_any_resource,
    check_entity,
    check_free_text,
    how_many_option,
    output_option,
)
from zae_limiter.cli.pages import Pages
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import end_json, hint, show, stream_json, stream_table
from zae_limiter.cli.words import entity_json, moment, on_resource, plain

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import Store
    from zae_limiter.models.entity import Entity


@click.command("list")
@click.option(
    "--with-custom-limits",
    metavar="RESOURCE",
    callback=check_any_resource,
    shell_complete=complete_resource,
    help="Those with limits of their own on a resource; _default_: on all others.",
)
@click.option(
    "--parent",
    metavar="ENTITY",
    callback=check_entity,
    shell_complete=complete_entity,
    help="Those under an entity.",
)
@how_many_option
@click.option("--all", "everything", is_flag=True, help="All of them, as they are read.")
@click.option("--cursor", metavar="ID", callback=check_free_text, help="Continue after this one.")
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
    """List entities, a page at a time.

    All that were created, those under a parent, or those with limits of their own on a
    resource (of which only the ids are listed). In order of their ids, except for all of them
    on DynamoDB, which has an order of its own.

    \b
    Examples:
      zae-limiter entity list
      zae-limiter entity list --parent project-1 --limit 20
      zae-limiter entity list --with-custom-limits gpt-4 --all

    JSON: entities (each: entity_id, name, parent_id, cascade, metadata, created_at),
    next_cursor (null at the end).
    """
    if with_custom_limits is not None and parent is not None:
        raise click.UsageError("say which: --with-custom-limits RESOURCE or --parent ENTITY")
    most = None if everything else limit
    with store.open() as repository:
        if with_custom_limits is not None:
            _list_ids(repository, with_custom_limits, most, cursor, output)
        else:
            _list_entities(repository, parent, most, cursor, output)


@click.command("list-resources")
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


def _list_ids(
    repository: SyncRepository, resource: str, most: int | None, cursor: str | None, output: str
) -> None:
    def fetch(size: int, after: str | None) -> tuple[list[str], str | None]:
        return repository.list_entities_with_custom_limits(resource, size, after)

    pages = Pages(fetch, most, cursor)
    if output == "json":
        stream_json("entities", pages, lambda each: {"entity_id": each})
        end_json(next_cursor=pages.next_cursor)
        return
    for page in pages:
        click.echo("\n".join(map(plain, page)))
    if not pages.found:
        near = did_you_mean(resource, repository.list_resources_with_entity_configs())
        hint(output, f"no entity has limits of its own on {on_resource(resource)}{near}")
    _more(output, pages)


def _list_entities(
    repository: SyncRepository,
    parent: str | None,
    most: int | None,
    cursor: str | None,
    output: str,
) -> None:
    def fetch(size: int, after: str | None) -> tuple[list[Entity], str | None]:
        return repository.list_entities(size, after, parent)

    pages = Pages(fetch, most, cursor)
    if output == "json":
        stream_json("entities", pages, entity_json)
        end_json(next_cursor=pages.next_cursor)
        return
    heads = ("entity", "name", *(() if parent else ("parent",)), "cascade", "created=")
    stream_table(heads, pages, lambda each: _row(each, parent))
    if not pages.found:
        where = f"under {parent!r}" if parent else "in this namespace"
        hint(output, f"no entity is {where}")
    _more(output, pages)


def _row(entity: Entity, parent: str | None) -> tuple[object, ...]:
    under = () if parent else (entity.parent_id,)
    cascade = "yes" if entity.cascade else "no"
    return entity.id, entity.name, *under, cascade, moment(entity.created_at)


def _more(output: str, pages: Pages[Any]) -> None:
    if pages.next_cursor is not None:
        hint(output, f"more: add --cursor {pages.next_cursor!r}, or --all")
