"""``zae-limiter entity list`` and ``list-resources``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.completion import complete_entity, complete_resource
from zae_limiter_ops.cli.shared.errors import did_you_mean
from zae_limiter_ops.cli.shared.formatting import (
    NOT_REGISTERED,
    describe_resource,
    entity_json,
    format_time,
    printable,
)
from zae_limiter_ops.cli.shared.listing import Pages, end_json, stream_json, stream_table
from zae_limiter_ops.cli.shared.namespace_pages import (
    InNamespace,
    Namespaces,
    all_namespaces_option,
    open_namespaces,
)
from zae_limiter_ops.cli.shared.options import (
    check_any_resource,
    check_entity,
    output_option,
    page_options,
)
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_result

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.entity import Entity
    from zae_limiter_ops.cli.shared.store import StoreLocation


@click.command("list")
@click.option(
    "--with-custom-limits",
    metavar="RESOURCE",
    callback=check_any_resource,
    shell_complete=complete_resource,
    help="Only entities with limits of their own on this resource (or on _default_).",
)
@click.option(
    "--parent",
    metavar="ENTITY",
    callback=check_entity,
    shell_complete=complete_entity,
    help="Only children of this entity.",
)
@page_options("entities", "entity", "ID")
@all_namespaces_option
@store_options
@output_option
def list_entities(
    store: StoreLocation,
    with_custom_limits: str | None,
    parent: str | None,
    limit: int,
    list_all: bool,
    cursor: str | None,
    all_namespaces: bool,
    output: str,
) -> None:
    """List entities, a page at a time.

    Lists all entities, the children of a parent, or the ids of the entities with limits of their
    own on a resource. Ids that have buckets but were never created are among all entities, as
    "in use, not registered". They are in the order of their ids, except for the list of all
    entities on DynamoDB, which is unordered.

    \b
    Examples:
      zae-limiter entity list
      zae-limiter entity list --parent project-1 --limit 20
      zae-limiter entity list --with-custom-limits gpt-4 --all
      zae-limiter entity list --all-namespaces

    JSON: entities (each: namespace, entity_id, name, parent_id, cascade, metadata, created_at
    (empty: in use, not registered)), next_cursor (null at the end).
    """
    if with_custom_limits is not None and parent is not None:
        raise click.UsageError("give only one of --with-custom-limits and --parent")
    max_entities = None if list_all else limit
    with open_namespaces(store, all_namespaces) as namespaces:
        if with_custom_limits is not None:
            _list_ids(namespaces, with_custom_limits, max_entities, cursor, output)
        else:
            _list_entities(namespaces, parent, max_entities, cursor, output)


@click.command("list-resources")
@store_options
@output_option
def list_resources(store: StoreLocation, output: str) -> None:
    """List resources on which entities have their own limits.

    \b
    Example:
      zae-limiter entity list-resources

    JSON: resources (names; "_default_": all without their own).
    """
    with store.open() as repository:
        names = repository.list_resources_with_entity_configs()
    print_result(output, {"resources": names}, *names)
    if not names:
        print_hint(output, "no entity has limits of its own")


def _list_ids(
    namespaces: Namespaces,
    resource: str,
    max_entities: int | None,
    cursor: str | None,
    output: str,
) -> None:
    def of_namespace(
        repository: SyncRepository, size: int, after: str | None
    ) -> tuple[list[str], str | None]:
        return repository.list_entities_with_custom_limits(resource, size, after)

    def fetch(size: int, after: str | None) -> tuple[list[InNamespace[str]], str | None]:
        return namespaces.page(of_namespace, size, after)

    pages = Pages(fetch, max_entities, cursor)
    if output == "json":
        stream_json("entities", pages, lambda each: _id_json(*each))
        end_json(next_cursor=pages.next_cursor)
        return
    if namespaces.are_all:
        stream_table((*namespaces.head, "entity"), pages, lambda each: [each])
    else:
        for page in pages:
            click.echo("\n".join(printable(entity_id) for _, entity_id in page))
    if not pages.item_count and cursor is None:
        configured = namespaces.repository.list_resources_with_entity_configs()
        suggestion = did_you_mean(resource, configured)
        print_hint(
            output, f"no entity has limits of its own on {describe_resource(resource)}{suggestion}"
        )
        namespaces.hint(output, of_namespace)
    _hint_more(output, pages)


def _id_json(namespace: str, entity_id: str) -> dict[str, Any]:
    return {"namespace": namespace, "entity_id": entity_id}


def _list_entities(
    namespaces: Namespaces,
    parent: str | None,
    max_entities: int | None,
    cursor: str | None,
    output: str,
) -> None:
    def of_namespace(
        repository: SyncRepository, size: int, after: str | None
    ) -> tuple[list[Entity], str | None]:
        return repository.list_entities(size, after, parent)

    def fetch(size: int, after: str | None) -> tuple[list[InNamespace[Entity]], str | None]:
        return namespaces.page(of_namespace, size, after)

    pages = Pages(fetch, max_entities, cursor)
    if output == "json":
        stream_json(
            "entities",
            pages,
            lambda each: {"namespace": each.namespace, **entity_json(each.item)},
        )
        end_json(next_cursor=pages.next_cursor)
        return
    heads = ("entity", "name", *(() if parent else ("parent",)), "cascade", "created=")
    stream_table(
        (*namespaces.head, *heads),
        pages,
        lambda each: [(*namespaces.cell(each.namespace), *_row(each.item, parent))],
    )
    if not pages.item_count and cursor is None:
        message = (
            f"entity {parent!r} has no children"
            if parent
            else "no entity was created here, and none is in use"
        )
        print_hint(output, message)
        namespaces.hint(output, of_namespace)
    _hint_more(output, pages)


def _row(entity: Entity, parent: str | None) -> tuple[object, ...]:
    parent_cell = () if parent else (entity.parent_id,)
    cascade = "yes" if entity.cascade else "no"
    if not entity.created_at:
        return entity.id, None, *parent_cell, "no", NOT_REGISTERED
    return entity.id, entity.name, *parent_cell, cascade, format_time(entity.created_at)


def _hint_more(output: str, pages: Pages[Any]) -> None:
    if pages.next_cursor is not None:
        print_hint(output, f"more: add --all, or --cursor {quoted(pages.next_cursor)}")
