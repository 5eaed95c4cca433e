"""Which namespace was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.groups import did_you_mean

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.config import Namespace


def find_namespace(repository: SyncRepository, name: str) -> Namespace:
    """An active namespace; a mistyped name gets the ones that were meant."""
    from zae_limiter.exceptions import NamespaceNotFoundError

    try:
        return repository.get_namespace(name)
    except NamespaceNotFoundError:
        near = did_you_mean(name, [each.name for each in repository.list_namespaces()])
        if not near:
            raise
        raise click.ClickException(f"namespace {name!r} is not registered{near}") from None


def find_orphan(repository: SyncRepository, namespace_id: str) -> Namespace | None:
    """The deleted namespace of that id; None if the registry does not know the id."""
    deleted = repository.list_orphan_namespaces()
    for each in deleted:
        if each.namespace_id == namespace_id:
            return each
    for each in repository.list_namespaces():
        if namespace_id in (each.namespace_id, each.name):
            raise click.ClickException(
                f"namespace {each.name!r} is active; zae-limiter namespace delete {each.name} "
                "takes it out of use first"
            )
    of_name = [each.namespace_id for each in deleted if each.name == namespace_id]
    if of_name:
        raise click.ClickException(
            f"{namespace_id!r} is a name, not an id; deleted under that name: {', '.join(of_name)}"
        )
    near = did_you_mean(namespace_id, [each.namespace_id for each in deleted])
    if near:
        raise click.ClickException(f"no deleted namespace has the id {namespace_id!r}{near}")
    return None


def unknown_id(namespace_id: str) -> str:
    return f"no deleted namespace has the id {namespace_id!r}; see 'zae-limiter namespace orphans'"
