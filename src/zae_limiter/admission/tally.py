"""Acquires that were rejected or have waited, as a bucket counts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus

NO_ASKED: Mapping[str, int] = MappingProxyType({})


class Tally(NamedTuple):
    """Counts of one bucket in one hour.

    ``rejected`` are acquires that ended in a rejection; ``through_children`` of them were acquires
    of children, which count them, too. ``waited`` are acquires that waited, however they ended.
    ``asked`` is the largest rejected amount of each limit, in whole tokens by plain name.
    """

    rejected: int = 0
    through_children: int = 0
    waited: int = 0
    asked: Mapping[str, int] = NO_ASKED

    @property
    def is_empty(self) -> bool:
        """Whether no acquire was counted."""
        return not (self.rejected or self.waited)

    def plus(self, other: Tally) -> Tally:
        """Return the sum of both, with the larger of their amounts."""
        return Tally(
            self.rejected + other.rejected,
            self.through_children + other.through_children,
            self.waited + other.waited,
            largest(self.asked, other.asked),
        )


NO_TALLY = Tally()


def largest(first: Mapping[str, int], second: Mapping[str, int]) -> Mapping[str, int]:
    """Return the larger amount of each limit."""
    if not second:
        return first
    amounts = dict(first)
    for name, amount in second.items():
        amounts[name] = max(amount, amounts.get(name, 0))
    return amounts


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of several."""
    summed = NO_TALLY
    for tally in tallies:
        summed = summed.plus(tally)
    return summed


def tallies_of(
    entity_id: str, statuses: Sequence[LimitStatus], *, has_waited: bool
) -> dict[str, Tally]:
    """Return what an acquire of an entity counts, by the entity whose bucket counts it.

    ``statuses`` are those of its rejection; there are none if it was not rejected. The entity that
    asked always counts its acquire, also a caller that woke after its deadline, when no limit is
    exceeded any more. A parent counts the rejection if it held too few tokens.
    """
    exceeded = [status for status in statuses if status.exceeded]
    rejected, waited = 1 if statuses else 0, 1 if has_waited else 0
    tallies = {entity_id: Tally(rejected, 0, waited, _asked(exceeded))}
    for status in exceeded:
        parent_id = status.entity_id
        if parent_id not in tallies:
            of_parent = [each for each in exceeded if each.entity_id == parent_id]
            tallies[parent_id] = Tally(1, 1, 0, _asked(of_parent))
    return tallies


def _asked(exceeded: Iterable[LimitStatus]) -> dict[str, int]:
    """Return the amounts that were too large; an amount of 0 is stopped by a debt or a pause."""
    amounts: dict[str, int] = {}
    for status in exceeded:
        if status.requested:
            before = amounts.get(status.limit_name, 0)
            amounts[status.limit_name] = max(status.requested, before)
    return amounts
