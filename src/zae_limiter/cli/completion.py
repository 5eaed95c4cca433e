"""What the shell offers for names that the store knows. Without a store it offers nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from zae_limiter.cli.store import Store, place_of

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository

OFFERED = 50
PATIENCE_S = 1.0

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def _completing(names: Callable[[SyncRepository, str], Iterable[str]]) -> Complete:
    """Names that begin with what was typed; a store that does not answer is no error here."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from zae_limiter.exceptions import ZAELimiterError

        given = {name: ctx.params.get(name) for name in ("stack", "region", "endpoint_url")}
        namespace = None if param.name == "namespace" else ctx.params.get("namespace")
        try:
            store = Store(place_of(ctx.params.get("url"), given), namespace)
            with store.open(timeout_s=PATIENCE_S) as repository:
                found = list(names(repository, incomplete))
        except (click.ClickException, ZAELimiterError, OSError):
            return []
        return [each for each in found if each.startswith(incomplete)][:OFFERED]

    return complete


def _resources(repository: SyncRepository, incomplete: str) -> Iterable[str]:
    own = set(repository.list_resources_with_entity_configs()) - {"_default_"}
    return sorted(own.union(repository.list_resources_with_defaults()))


def _namespaces(repository: SyncRepository, incomplete: str) -> Iterable[str]:
    return [each.name for each in repository.list_namespaces()]


def _orphans(repository: SyncRepository, incomplete: str) -> Iterable[str]:
    return [each.namespace_id for each in repository.list_orphan_namespaces()]


def _entities(repository: SyncRepository, incomplete: str) -> Iterable[str]:
    from zae_limiter.cli.inspection import entities_near, view_entity

    itself = [incomplete] if incomplete and view_entity(repository, incomplete).is_known else []
    return sorted({*itself, *entities_near(repository, incomplete, OFFERED)})


complete_resource = _completing(_resources)
complete_namespace = _completing(_namespaces)
complete_orphan = _completing(_orphans)
complete_entity = _completing(_entities)
