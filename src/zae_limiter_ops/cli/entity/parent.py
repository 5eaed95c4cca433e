"""``zae-limiter entity set-parent``, and checks of parents for other commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.completion import complete_entity
from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.cli.shared.options import (
    check_entity,
    entity_argument,
    output_option,
    principal_option,
)
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_result
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.entities import entity_json

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.entity import Entity
    from zae_limiter_ops.cli.shared.store import StoreLocation

MAX_COUNTED_CHILDREN = 1000  # one page: the question must come soon, even with very many
MAX_NAMED_CHILDREN = 3  # enough to recognise the children; entity list shows all

force_option = click.option(
    "--force", is_flag=True, help="Accept a parent that does not exist as an entity."
)


@click.command("set-parent")
@entity_argument
@click.argument(
    "parent",
    metavar="[PARENT]",
    required=False,
    callback=check_entity,
    shell_complete=complete_entity,
)
@click.option("--none", "no_parent", is_flag=True, help="Remove the parent.")
@click.option(
    "--cascade/--no-cascade",
    default=True,
    show_default=True,
    help="Charge the parent as well, at every acquire.",
)
@force_option
@principal_option
@store_options
@output_option
def set_parent(
    store: StoreLocation,
    entity_id: str,
    parent: str | None,
    no_parent: bool,
    cascade: bool,
    force: bool,
    principal: str | None,
    output: str,
) -> None:
    """Give an entity another parent, or none. Buckets and limits stay.

    Clients charge the new parent within their cache time, by default a minute.

    \b
    Examples:
      zae-limiter entity set-parent key-7 project-2
      zae-limiter entity set-parent key-7 --none

    JSON: entity_id, name, parent_id, cascade, metadata, created_at.
    """
    if (parent is None) != no_parent:
        raise click.UsageError("give either PARENT, or --none to remove the parent")
    with store.open() as repository:
        before = repository.get_entity(entity_id)
        if before is None:
            raise click.ClickException(_unregistered(repository, entity_id))
        if parent is not None and not force:
            require_parent(repository, parent)
        after = repository.set_parent(entity_id, parent, cascade, principal)
    text = f"{entity_id}: {_describe(after)} (before: {_describe(before)})"
    print_result(output, entity_json(after), text)


def _describe(entity: Entity) -> str:
    if entity.parent_id is None:
        return "no parent"
    charged = "charged by every acquire" if entity.cascade else "not charged"
    return f"parent {entity.parent_id!r}, {charged}"


def _unregistered(repository: SyncRepository, entity_id: str) -> str:
    from zae_limiter_ops.views.names import similar_entities

    suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
    creation = suggested("entity", "create", entity_id, options=("--parent", "PARENT"))
    advice = suggestion or f"; create it: {creation}"
    return f"entity {entity_id!r} is not registered{advice}"


def require_parent(repository: SyncRepository, parent_id: str) -> None:
    """Raise if the parent was never created: a mistyped id would leave the parent uncharged."""
    from zae_limiter_ops.views.names import similar_entities

    if repository.get_entity(parent_id) is not None:
        return
    suggestion = did_you_mean(parent_id, similar_entities(repository, parent_id))
    raise click.ClickException(
        f"the parent {parent_id!r} does not exist{suggestion}; give --force, or create it first: "
        f"{suggested('entity', 'create', parent_id)}"
    )


def describe_orphans(repository: SyncRepository, entity_id: str) -> str:
    """Name the children of a deleted entity, and the consequences for them; empty if none."""
    children, more = repository.list_entities(MAX_COUNTED_CHILDREN, parent_id=entity_id)
    if not children:
        return ""
    count = f"{len(children):,}{' or more' if more else ''}"
    entities = "1 entity" if len(children) == 1 else f"{count} entities"
    names = ", ".join(quoted(child.id) for child in children[:MAX_NAMED_CHILDREN])
    rest = ", ..." if len(children) > MAX_NAMED_CHILDREN else ""
    move = suggested("entity", "set-parent", children[0].id, "PARENT")
    return (
        f"{entities} under it ({names}{rest}) will still have it as parent: children that cascade "
        f"charge {quoted(entity_id)} under the defaults; to move a child: {move}"
    )
