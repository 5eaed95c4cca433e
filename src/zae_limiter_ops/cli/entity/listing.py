"""``zae-limiter entity list`` and ``list-resources``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.completion import complete_entity, complete_resource
from zae_limiter_ops.cli.shared.listing import print_next_page, print_pages
from zae_limiter_ops.cli.shared.namespace_pages import (
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
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.columns import Column
from zae_limiter_ops.views.entities import entity_columns
from zae_limiter_ops.views.formatting import describe_resource, printable

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

    The command lists all entities, the children of a parent, or the ids of the entities with
    limits of their own on a resource. The list of all entities contains ids that have buckets but
    were never created, as "in use, not registered". Entities are listed in the order of their
    ids, except for the list of all entities on DynamoDB, which is unordered.

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
    """List resources on which entities have limits of their own.

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
    """List the ids of the entities that have limits of their own on a resource."""

    def of_namespace(
        repository: SyncRepository, size: int, after: str | None
    ) -> tuple[list[str], str | None]:
        return repository.list_entities_with_custom_limits(resource, size, after)

    id_column: Column[str] = Column(title="entity", key="entity_id", value=str)
    columns = namespaces.columns([id_column])
    pages = namespaces.pages(of_namespace, max_entities, cursor)
    if output == "table" and not namespaces.are_all:
        for page in pages:
            click.echo("\n".join(printable(entity_id) for _, entity_id in page))
        print_next_page(output, pages)
    else:
        print_pages(output, "entities", columns, pages)
    if not pages.record_count and cursor is None and output != "json":
        configured = namespaces.repository.list_resources_with_entity_configs()
        suggestion = did_you_mean(resource, configured)
        print_hint(
            output, f"no entity has limits of its own on {describe_resource(resource)}{suggestion}"
        )
        namespaces.hint(output, of_namespace)


def _list_entities(
    namespaces: Namespaces,
    parent: str | None,
    max_entities: int | None,
    cursor: str | None,
    output: str,
) -> None:
    """List all entities, or the children of a parent."""

    def of_namespace(
        repository: SyncRepository, size: int, after: str | None
    ) -> tuple[list[Entity], str | None]:
        return repository.list_entities(size, after, parent)

    columns = namespaces.columns(entity_columns(with_parent=parent is None))
    pages = namespaces.pages(of_namespace, max_entities, cursor)
    print_pages(output, "entities", columns, pages)
    if not pages.record_count and cursor is None and output != "json":
        print_hint(
            output,
            f"entity {quoted(parent)} has no children"
            if parent
            else "no entity was created here, and none is in use",
        )
        namespaces.hint(output, of_namespace)
