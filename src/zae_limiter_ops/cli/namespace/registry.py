"""Find namespaces by the name or id that was typed, and purge them with progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.exceptions import NamespaceNotFoundError, PermissionDenied, RateLimiterUnavailable
from zae_limiter_ops.cli.shared.console import status
from zae_limiter_ops.cli.shared.errors import Interrupted, suggested
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.formatting import count_of

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.entity import Namespace


def find_namespace(repository: SyncRepository, name: str) -> Namespace:
    """Return an active namespace. The error for a mistyped name suggests similar names."""
    try:
        return repository.get_namespace(name)
    except NamespaceNotFoundError:
        names = [namespace.name for namespace in repository.list_namespaces()]
        suggestion = did_you_mean(name, names)
        if not suggestion:
            raise
        raise click.ClickException(f"namespace {name!r} is not registered{suggestion}") from None


def find_orphan(repository: SyncRepository, namespace_id: str) -> Namespace | None:
    """Return the deleted namespace with that id; None if the registry does not have the id.

    Raises with advice if ``namespace_id`` is a name, a similar id, or an active namespace.
    """
    orphans = repository.list_orphan_namespaces()
    for orphan in orphans:
        if orphan.namespace_id == namespace_id:
            return orphan
    for active in repository.list_namespaces():
        if namespace_id in (active.namespace_id, active.name):
            raise click.ClickException(
                f"namespace {active.name!r} is active; delete it first: "
                f"{suggested('namespace', 'delete', active.name)}"
            )
    ids = [orphan.namespace_id for orphan in orphans if orphan.name == namespace_id]
    if ids:
        raise click.ClickException(
            f"{namespace_id!r} is a name; give the id of the deleted namespace: {', '.join(ids)}"
        )
    suggestion = did_you_mean(namespace_id, [orphan.namespace_id for orphan in orphans])
    if suggestion:
        raise click.ClickException(f"no deleted namespace has the id {namespace_id!r}{suggestion}")
    return None


def unknown_id(namespace_id: str) -> str:
    orphans = suggested("namespace", "orphans")
    return (
        f"no deleted namespace has the id {namespace_id!r}; list the deleted namespaces: {orphans}"
    )


def purge_with_progress(
    repository: SyncRepository, namespace_id: str, principal: str | None
) -> int:
    """Purge a namespace and return the number of removed rows.

    Every failure, and an interrupt, states how many rows were removed and how to resume.
    """
    removed = 0
    with status(f"purging {namespace_id}") as update:

        def progress(count: int) -> None:
            nonlocal removed
            removed = count
            update(f"purging {namespace_id}: {count_of(count, 'row')} removed")

        try:
            return repository.purge_namespace(namespace_id, progress, principal)
        except NamespaceNotFoundError:
            raise click.ClickException(unknown_id(namespace_id)) from None
        except (PermissionDenied, RateLimiterUnavailable) as error:
            raise click.ClickException(f"{error}; {_how_far(namespace_id, removed)}") from error
        except KeyboardInterrupt:
            raise Interrupted(_how_far(namespace_id, removed)) from None


def _how_far(namespace_id: str, removed: int) -> str:
    return (
        f"after at least {count_of(removed, 'row')} were removed for good; remove the rest: "
        f"{suggested('namespace', 'purge', namespace_id)}"
    )
