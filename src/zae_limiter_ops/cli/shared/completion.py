"""Shell completion of names in the store. It suggests nothing if the store cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter_ops.cli.shared.store import StoreLocation, resolve_url

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository

MAX_SUGGESTIONS = 50  # more do not fit a screen
REQUEST_TIMEOUT_S = 1.0  # the shell waits for the suggestions

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def _completer(
    list_names: Callable[[SyncRepository, str, click.Context], Iterable[str]],
) -> Complete:
    """Return a click callback that suggests the names that start with the typed text.

    ``list_names`` gets the repository, the typed text, and the context of the words before it.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        stack_options = {name: ctx.params.get(name) for name in ("stack", "region", "endpoint_url")}
        namespace = None if param.name == "namespace" else ctx.params.get("namespace")
        try:
            store = StoreLocation(resolve_url(ctx.params.get("url"), stack_options), namespace)
            with store.open(timeout_s=REQUEST_TIMEOUT_S) as repository:
                names = list(list_names(repository, incomplete, ctx))
        except (click.ClickException, ZAELimiterError, OSError):
            return []
        return [name for name in names if name.startswith(incomplete)][:MAX_SUGGESTIONS]

    return complete


def _resources(repository: SyncRepository, incomplete: str, ctx: click.Context) -> Iterable[str]:
    with_entity_limits = set(repository.list_resources_with_entity_configs()) - {DEFAULT_RESOURCE}
    return sorted(with_entity_limits.union(repository.list_resources_with_defaults()))


def _namespaces(repository: SyncRepository, incomplete: str, ctx: click.Context) -> Iterable[str]:
    return [namespace.name for namespace in repository.list_namespaces()]


def _orphans(repository: SyncRepository, incomplete: str, ctx: click.Context) -> Iterable[str]:
    return [namespace.namespace_id for namespace in repository.list_orphan_namespaces()]


def _entities(repository: SyncRepository, incomplete: str, ctx: click.Context) -> Iterable[str]:
    from zae_limiter_ops.views.entities import view_entity
    from zae_limiter_ops.views.names import entity_ids_after

    # The listing starts after the typed text, which may itself be a whole id.
    exact = [incomplete] if incomplete and view_entity(repository, incomplete).is_known else []
    return sorted({*exact, *entity_ids_after(repository, incomplete, MAX_SUGGESTIONS)})


def _amounts(repository: SyncRepository, incomplete: str, ctx: click.Context) -> Iterable[str]:
    """Return ``rpm=`` for each limit in force, and each limit of the bucket."""
    # Click leaves the arguments unassigned after an option that lacks its value.
    arguments = ctx.args or [ctx.params.get(name) or "" for name in ("entity_id", "resource")]
    if len(arguments) != 2 or not all(arguments):
        return []
    entity_id, resource = arguments
    limits, _, _ = repository.resolve_limits(entity_id, resource)
    names = {limit.name for limit in limits or ()}
    names.update(state.limit_name for state in repository.get_buckets(entity_id, resource))
    return sorted(f"{name}=" for name in names)


complete_amount = _completer(_amounts)
complete_resource = _completer(_resources)
complete_namespace = _completer(_namespaces)
complete_orphan = _completer(_orphans)
complete_entity = _completer(_entities)
