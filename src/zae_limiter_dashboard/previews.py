"""What an action of an operator would change, for a person to confirm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.naming import check_entity_id, check_resource

if TYPE_CHECKING:
    from zae_limiter import SyncRepository
    from zae_limiter_dashboard.board import Board
    from zae_limiter_ops.views.advice import GivenOptions

Fields = Mapping[str, str]


class PageChange(NamedTuple):
    """One value before and after an action."""

    label: str
    before: str
    after: str


class Touched(NamedTuple):
    """The entities with buckets that a change of limits touches, and the first of them."""

    total: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would change, and the command line that does the same.

    ``fields`` are repeated by the confirmation. They contain the values that were seen, so that
    a value which somebody else has changed meanwhile is not overwritten.
    """

    title: str
    changes: tuple[PageChange, ...]
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)
    touched: Touched | None = None
    note: str = ""

    def command(self, given: GivenOptions) -> str:
        """Return the command line, with the options that name the store."""
        return given.command(*self.words, options=self.options)


class ActionPlace(NamedTuple):
    """The namespace that an action works on, with the last board of its buckets."""

    repository: SyncRepository
    board: Board


class PageAction(NamedTuple):
    """An action: its title, its preview, and its execution, which returns a sentence."""

    title: str
    preview: Callable[[ActionPlace, Fields], Preview]
    perform: Callable[[SyncRepository, Fields, str], str]
    has_form: bool = True  # values to fill in


def bucket_of(fields: Fields) -> tuple[str, str]:
    """Return the entity and the resource of a form."""
    return check_entity_id(fields.get("entity", "")), check_resource(fields.get("resource", ""))
