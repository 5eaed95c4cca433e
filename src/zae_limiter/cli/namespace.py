"""``zae-limiter namespace``: the isolated parts of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.completion import complete_namespace, complete_orphan
from zae_limiter.cli.consent import confirm, status
from zae_limiter.cli.groups import CommandGroup
from zae_limiter.cli.namespace_lookup import find_namespace, find_orphan, unknown_id
from zae_limiter.cli.namespace_purge import purge_with_progress
from zae_limiter.cli.options import (
    check_free_text,
    check_namespace_name,
    output_option,
    principal_option,
    yes_option,
)
from zae_limiter.cli.store import DEFAULT_NAMESPACE
from zae_limiter.cli.store_options import registry_options
from zae_limiter.cli.tables import hint, print_fields, print_table, show
from zae_limiter.cli.words import moment, namespace_json, rows

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import Store
    from zae_limiter.models.config import Namespace

name_argument = click.argument(
    "name", metavar="NAME", callback=check_namespace_name, shell_complete=complete_namespace
)
id_argument = click.argument(
    "namespace_id", metavar="ID", callback=check_free_text, shell_complete=complete_orphan
)


@click.group(cls=CommandGroup)
def namespace() -> None:
    """Isolated parts of one store, such as one for each tenant.

    \b
    Example:
      zae-limiter namespace register tenant-alpha
    """


@namespace.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, callback=check_namespace_name)
@click.option(
    "--create-table",
    is_flag=True,
    help="Make the DynamoDB table if it is missing, without a stack.",
)
@principal_option
@registry_options
@output_option
def register(
    store: Store,
    names: tuple[str, ...],
    create_table: bool,
    principal: str | None,
    output: str,
) -> None:
    """Register namespaces.

    Those that exist stay as they are. Makes the file of a store if it is missing, and a
    table only if told so.

    \b
    Examples:
      zae-limiter namespace register tenant-alpha tenant-beta
      zae-limiter namespace register default --create-table --endpoint-url http://localhost:8000

    JSON: namespaces (each: namespace_id, name).
    """
    with _registry(store, create_table) as repository:
        ids = repository.register_namespaces(names, principal)
    show(
        output,
        {"namespaces": [{"namespace_id": ids[name], "name": name} for name in ids]},
        *(f"{name}  {ids[name]}" for name in ids),
    )


@namespace.command("list")
@registry_options
@output_option
def list_namespaces(store: Store, output: str) -> None:
    """List the active namespaces.

    \b
    Example:
      zae-limiter namespace list

    JSON: namespaces (each: namespace_id, name, status, created_at, deleted_at).
    """
    with store.registry() as repository:
        found = repository.list_namespaces()
    _report(output, found)


@namespace.command("show")
@name_argument
@registry_options
@output_option
def show_namespace(store: Store, name: str, output: str) -> None:
    """Show one namespace.

    \b
    Example:
      zae-limiter namespace show tenant-alpha

    JSON: namespace_id, name, status, created_at, deleted_at.
    """
    with store.registry() as repository:
        found = find_namespace(repository, name)
    if output == "json":
        show(output, namespace_json(found))
    else:
        print_fields(namespace_json(found).items())


@namespace.command()
@name_argument
@yes_option
@principal_option
@registry_options
@output_option
def delete(store: Store, name: str, yes: bool, principal: str | None, output: str) -> None:
    """Take a namespace out of use.

    Its name is free again. The data stays and can be recovered until it is purged.

    \b
    Example:
      zae-limiter namespace delete tenant-alpha

    JSON: namespace_id, name.
    """
    with store.registry() as repository:
        found = find_namespace(repository, name)
        opened = "an empty one" if name == DEFAULT_NAMESPACE else "an empty one, or none"
        confirm(
            f"This takes the namespace {name!r} out of use: clients that open it find {opened}; "
            f"open ones go on until they close. Its data stays under the id {found.namespace_id} "
            "and can be recovered",
            "Delete it?",
            yes=yes,
        )
        namespace_id = repository.delete_namespace(name, principal)
    show(
        output,
        {"namespace_id": namespace_id, "name": name},
        f"deleted {name!r}; undo: zae-limiter namespace recover {namespace_id}; "
        f"for good: zae-limiter namespace purge {namespace_id}",
    )


@namespace.command()
@id_argument
@principal_option
@registry_options
@output_option
def recover(store: Store, namespace_id: str, principal: str | None, output: str) -> None:
    """Undo the deletion of a namespace.

    `namespace orphans` lists the ids.

    \b
    Example:
      zae-limiter namespace recover kX3_vJ0mUqw

    JSON: namespace_id, name.
    """
    with store.registry() as repository:
        if find_orphan(repository, namespace_id) is None:
            raise click.ClickException(unknown_id(namespace_id))
        name = repository.recover_namespace(namespace_id, principal)
    show(output, {"namespace_id": namespace_id, "name": name}, f"{name!r} is in use again")


@namespace.command()
@registry_options
@output_option
def orphans(store: Store, output: str) -> None:
    """List deleted namespaces whose data is still there.

    \b
    Example:
      zae-limiter namespace orphans

    JSON: namespaces (each: namespace_id, name, status, created_at, deleted_at).
    """
    with store.registry() as repository:
        found = repository.list_orphan_namespaces()
    _report(output, found)


@namespace.command()
@id_argument
@yes_option
@principal_option
@registry_options
@output_option
def purge(store: Store, namespace_id: str, yes: bool, principal: str | None, output: str) -> None:
    """Remove a deleted namespace for good.

    Interrupted, it can be run again.

    \b
    Example:
      zae-limiter namespace purge kX3_vJ0mUqw

    JSON: namespace_id, removed_rows.
    """
    with store.registry() as repository:
        found = find_orphan(repository, namespace_id)
        what = f"namespace {found.name!r}" if found else "a namespace that is not registered"
        confirm(
            f"This removes all data of {what} ({namespace_id}) for good: entities, limits, "
            "buckets, usage and audit events. There is no way back",
            "Purge it?",
            yes=yes,
        )
        removed = purge_with_progress(repository, namespace_id, principal)
    show(
        output,
        {"namespace_id": namespace_id, "removed_rows": removed},
        f"purged {namespace_id}: {rows(removed)} removed",
    )


def _registry(store: Store, create_table: bool) -> SyncRepository:
    if not create_table:
        return store.registry(create=True)
    with status("making the table"):
        return store.registry(create=True, create_table=True)


def _report(output: str, found: list[Namespace]) -> None:
    if output == "json":
        show(output, {"namespaces": [namespace_json(each) for each in found]})
    elif not found:
        hint(output, "none")
    else:
        deleted = any(each.deleted_at for each in found)
        print_table(
            ("namespace", "id=", "created=", *(("deleted=", "status=") if deleted else ())),
            ((_row(each) if deleted else _row(each)[:3]) for each in found),
        )


def _row(each: Namespace) -> tuple[str, ...]:
    deleted = moment(each.deleted_at) if each.deleted_at else ""
    return each.name, each.namespace_id, moment(each.created_at), deleted, each.status
