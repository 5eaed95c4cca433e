"""Names that a namespace has never seen: a change of one has probably missed its target."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.errors import did_you_mean
from zae_limiter_ops.cli.shared.tables import print_hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zae_limiter._sync.repository import SyncRepository


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
    from zae_limiter_ops.cli.shared.lookups import (
        is_known_entity,
        is_known_resource,
        similar_entities,
        similar_resources,
    )

    found = []
    if entity_id and not is_known_entity(repository, entity_id):
        suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
        found.append(UnknownName(quoted(entity_id), suggestion))
    if resource and resource != DEFAULT_RESOURCE and not is_known_resource(repository, resource):
        suggestion = did_you_mean(resource, similar_resources(repository))
        found.append(UnknownName(f"resource {quoted(resource)}", suggestion))
    return found


def refuse_unknown(unknown: Iterable[UnknownName], *, force: bool) -> None:
    """Raise if a name was never seen: calls that were to be denied would go on."""
    problems = "; ".join(each.problem for each in unknown)
    if problems and not force:
        raise click.ClickException(
            f"{problems}; nothing was denied; check the name, or give --force to deny it all the "
            "same"
        )


def warn_unknown(output: str, unknown: Iterable[UnknownName]) -> None:
    """Warn on stderr about the names that a change has made known."""
    for each in unknown:
        print_hint(output, each.warning)
