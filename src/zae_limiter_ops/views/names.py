"""Ids and names of resources: whether a namespace knows them, and which ones are similar.

A change of a name that was never seen has probably missed its target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.shell_words import quoted
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.entities import has_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zae_limiter._sync.repository import SyncRepository

# Suggestions for a mistyped id must be cheap in stores with very many entities. So they come from
# one page of ids that share the first characters, which are rarely mistyped, and from a few
# resources.
SUGGESTION_PAGE = 200
TRUSTED_PREFIX = 3
MAX_SEARCHED_RESOURCES = 5


def is_known_entity(repository: SyncRepository, entity_id: str) -> bool:
    """Return whether an entity was created or used, or has limits or a mode of its own.

    The cheapest reads come first.
    """
    return (
        bool(repository.get_buckets(entity_id))
        or repository.get_entity(entity_id) is not None
        or bool(repository.get_limits(entity_id))
        or repository.get_mode(entity_id=entity_id) is not None
        or any(
            has_own(repository, entity_id, resource)
            for resource in repository.list_resources_with_entity_configs()
            if resource != DEFAULT_RESOURCE
        )
        or bool(repository.get_usage_summary(entity_id).snapshot_count)
    )


def is_known_resource(repository: SyncRepository, resource: str) -> bool:
    """Return whether a resource has defaults, limits of entities, or buckets, or was used."""
    return (
        resource in repository.list_resources_with_defaults()
        or resource in repository.list_resources_with_entity_configs()
        or bool(repository.list_buckets(1, resource=resource)[0])
        or resource in repository.list_resources()
    )


def similar_entities(repository: SyncRepository, entity_id: str) -> list[str]:
    """Return some ids that start like this one, and some that are in use, from cheap reads."""
    states, _ = repository.list_buckets(SUGGESTION_PAGE)
    in_use = {state.entity_id for state in states}
    start = entity_id[:TRUSTED_PREFIX]
    return sorted(in_use.union(entity_ids_after(repository, start, SUGGESTION_PAGE)))


def similar_resources(repository: SyncRepository) -> list[str]:
    """Return some names of resources, from a few cheap reads."""
    states, _ = repository.list_buckets(SUGGESTION_PAGE)
    return sorted(
        {
            *repository.list_resources_with_defaults(),
            *repository.list_resources_with_entity_configs(),
            *(state.resource for state in states),
        }
        - {DEFAULT_RESOURCE}
    )


def entity_ids_after(repository: SyncRepository, start: str, limit: int) -> list[str]:
    """Return ids after ``start`` of entities that were created or have limits of their own.

    The result is incomplete for a store that lists entities unordered: only its first page is
    read.
    """
    pages = (repository.list_entities(limit, cursor) for cursor in {"", start})
    entity_ids = {entity.id for entities, _ in pages for entity in entities}
    for resource in repository.list_resources_with_entity_configs()[:MAX_SEARCHED_RESOURCES]:
        ids, _ = repository.list_entities_with_custom_limits(resource, limit, start)
        entity_ids.update(ids)
    return sorted(entity_ids)


class UnknownName(NamedTuple):
    """An id or a resource that was never seen, and a suggestion, which may be empty."""

    label: str
    suggestion: str

    @property
    def warning(self) -> str:
        return f"{self.label} was not known before this change{self.suggestion}"

    @property
    def problem(self) -> str:
        return f"{self.label} is not known{self.suggestion}"


def unknown_names(
    repository: SyncRepository, entity_id: str | None, resource: str | None
) -> list[UnknownName]:
    """Return those of the names that were never created, configured or used."""
    found = []
    if entity_id and not is_known_entity(repository, entity_id):
        suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
        found.append(UnknownName(quoted(entity_id), suggestion))
    if resource and resource != DEFAULT_RESOURCE and not is_known_resource(repository, resource):
        suggestion = did_you_mean(resource, similar_resources(repository))
        found.append(UnknownName(f"resource {quoted(resource)}", suggestion))
    return found


def unused_limit(by: str | None, limit_names: Sequence[str]) -> str:
    """Say that no call has used the limit of a ranking; empty if one has, or if none used any."""
    if by is None or by in limit_names or not limit_names:
        return ""
    suggestion = did_you_mean(by, limit_names)
    used = ", ".join(limit_names)
    return f"no call has used this limit{suggestion}; limits with usage: {used}"


def unknown_resource(repositories: Iterable[SyncRepository], resource: str | None) -> str:
    """Say that no namespace knows the resource of a ranking; empty if one does."""
    in_use: set[str] = set()
    for repository in repositories:
        if resource is None or is_known_resource(repository, resource):
            return ""
        in_use.update(repository.list_resources())
    suggestion = did_you_mean(resource or "", in_use)
    names = ", ".join(sorted(in_use)) or "none"
    return f"resource {resource!r} is not known{suggestion}; resources in use: {names}"
