"""``zae-limiter namespace``: register, list, delete, recover and purge namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter_ops.cli.namespace.registry import (
    find_namespace,
    find_orphan,
    purge_with_progress,
    unknown_id,
)
from zae_limiter_ops.cli.shared.completion import complete_namespace, complete_orphan
from zae_limiter_ops.cli.shared.console import confirm, status
from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.options import (
    check_free_text,
    check_namespace_name,
    output_option,
    principal_option,
    yes_option,
)
from zae_limiter_ops.cli.shared.records import print_records
from zae_limiter_ops.cli.shared.store_options import registry_options
from zae_limiter_ops.cli.shared.tables import print_fields, print_result
from zae_limiter_ops.views.columns import Column, json_of
from zae_limiter_ops.views.formatting import count_of, format_time

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.entity import Namespace
    from zae_limiter_ops.cli.shared.store import StoreLocation

name_argument = click.argument(
    "name", metavar="NAME", callback=check_namespace_name, shell_complete=complete_namespace
)
id_argument = click.argument(
    "namespace_id", metavar="ID", callback=check_free_text, shell_complete=complete_orphan
)

COLUMNS: tuple[Column[Namespace], ...] = (
    Column(key="namespace_id", value=lambda entry: entry.namespace_id),
    Column(title="namespace", key="name", value=lambda entry: entry.name),
    Column(title="id=", value=lambda entry: entry.namespace_id),
    Column(key="status", value=lambda entry: entry.status),
    Column(
        title="created=",
        key="created_at",
        value=lambda entry: entry.created_at,
        format=format_time,
    ),
    Column(key="deleted_at", value=lambda entry: entry.deleted_at),
)
DELETION_COLUMNS: tuple[Column[Namespace], ...] = (
    Column(title="deleted=", value=lambda entry: format_time(entry.deleted_at or "")),
    Column(title="status=", value=lambda entry: entry.status),
)


@click.group(cls=CommandGroup)
def namespace() -> None:
    """Manage namespaces, the isolated parts of a store.

    \b
    Example:
      zae-limiter namespace register tenant-alpha
    """


@namespace.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, callback=check_namespace_name)
@click.option(
    "--create-table",
    is_flag=True,
    help="Create a missing DynamoDB table, without a stack.",
)
@principal_option
@registry_options
@output_option
def register(
    store: StoreLocation,
    names: tuple[str, ...],
    create_table: bool,
    principal: str | None,
    output: str,
) -> None:
    """Register namespaces.

    Existing namespaces stay as they are. The command creates a missing SQLite file, but a missing
    DynamoDB table only with --create-table.

    \b
    Examples:
      zae-limiter namespace register tenant-alpha tenant-beta
      zae-limiter namespace register default --create-table --endpoint-url http://localhost:8000

    JSON: namespaces (each: namespace_id, name).
    """
    with _registry(store, create_table) as repository:
        ids = repository.register_namespaces(names, principal)
    print_result(
        output,
        {"namespaces": [{"namespace_id": ids[name], "name": name} for name in ids]},
        *(f"{name}  {ids[name]}" for name in ids),
    )


@namespace.command("list")
@registry_options
@output_option
def list_namespaces(store: StoreLocation, output: str) -> None:
    """List the active namespaces.

    \b
    Example:
      zae-limiter namespace list

    JSON: namespaces (each: namespace_id, name, status, created_at, deleted_at).
    """
    with store.registry() as repository:
        namespaces = repository.list_namespaces()
    if_none = "no namespace is registered"
    print_records(output, COLUMNS, namespaces, name="namespaces", if_none=if_none)


@namespace.command("show")
@name_argument
@registry_options
@output_option
def show_namespace(store: StoreLocation, name: str, output: str) -> None:
    """Show one namespace.

    \b
    Example:
      zae-limiter namespace show tenant-alpha

    JSON: namespace_id, name, status, created_at, deleted_at.
    """
    with store.registry() as repository:
        data = json_of(COLUMNS, find_namespace(repository, name))
    if output == "json":
        print_result(output, data)
    else:
        print_fields(data.items())


@namespace.command()
@name_argument
@yes_option
@principal_option
@registry_options
@output_option
def delete(store: StoreLocation, name: str, yes: bool, principal: str | None, output: str) -> None:
    """Delete a namespace, recoverably.

    The name becomes free. The data stays and can be recovered until the namespace is purged.

    \b
    Example:
      zae-limiter namespace delete tenant-alpha

    JSON: namespace_id, name.
    """
    with store.registry() as repository:
        current = find_namespace(repository, name)
        # Clients register the default namespace by themselves.
        opened = "an empty one" if name == DEFAULT_NAMESPACE else "an empty one, or none"
        confirm(
            f"This deletes the namespace {name!r}: clients that open it from now on find {opened}; "
            "clients that have it open use it until they close. Its data stays under the id "
            f"{current.namespace_id} and can be recovered",
            "Delete it?",
            yes=yes,
        )
        namespace_id = repository.delete_namespace(name, principal)
    print_result(
        output,
        {"namespace_id": namespace_id, "name": name},
        f"deleted {name!r}; undo: {suggested('namespace', 'recover', namespace_id)}; "
        f"remove its data: {suggested('namespace', 'purge', namespace_id)}",
    )


@namespace.command()
@id_argument
@principal_option
@registry_options
@output_option
def recover(store: StoreLocation, namespace_id: str, principal: str | None, output: str) -> None:
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
    print_result(output, {"namespace_id": namespace_id, "name": name}, f"recovered {name!r}")


@namespace.command()
@registry_options
@output_option
def orphans(store: StoreLocation, output: str) -> None:
    """List deleted namespaces that are not purged.

    \b
    Example:
      zae-limiter namespace orphans

    JSON: namespaces (each: namespace_id, name, status, created_at, deleted_at).
    """
    with store.registry() as repository:
        namespaces = repository.list_orphan_namespaces()
    columns = (*COLUMNS, *DELETION_COLUMNS)
    if_none = "no deleted namespace has data left"
    print_records(output, columns, namespaces, name="namespaces", if_none=if_none)


@namespace.command()
@id_argument
@yes_option
@principal_option
@registry_options
@output_option
def purge(
    store: StoreLocation, namespace_id: str, yes: bool, principal: str | None, output: str
) -> None:
    """Remove the data of a deleted namespace for good.

    An interrupted purge can be resumed by running it again.

    \b
    Example:
      zae-limiter namespace purge kX3_vJ0mUqw

    JSON: namespace_id, removed_rows.
    """
    with store.registry() as repository:
        orphan = find_orphan(repository, namespace_id)
        subject = f"namespace {orphan.name!r}" if orphan else "a namespace that is not registered"
        confirm(
            f"This removes all data of {subject} ({namespace_id}) for good: entities, limits, "
            "buckets, usage and audit events. It cannot be undone",
            "Purge it?",
            yes=yes,
        )
        removed = purge_with_progress(repository, namespace_id, principal)
    print_result(
        output,
        {"namespace_id": namespace_id, "removed_rows": removed},
        f"purged {namespace_id}: {count_of(removed, 'row')} removed",
    )


def _registry(store: StoreLocation, create_table: bool) -> SyncRepository:
    if not create_table:
        return store.registry(create=True)
    with status("creating the table"):
        return store.registry(create=True, create_table=True)
