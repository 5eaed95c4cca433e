"""Acquires that were rejected or shadowed, or have waited, as a bucket counts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.naming import usage_name

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.models.status import LimitStatus

NO_ASKED: Mapping[str, int] = MappingProxyType({})


class Tally(NamedTuple):
    """Counts of one bucket in one hour.

    ``rejected`` counts acquires that ended in a rejection. ``through_children`` of them were
    acquires of children, which the children count as well. ``waited`` counts acquires that waited,
    whether they were granted or rejected. ``asked`` is the largest rejected amount of each limit:
    whole tokens by plain name, and billionths of a budget by the name of its usage. ``shadowed``
    counts acquires that would have been rejected and that shadow mode let through.
    """

    rejected: int = 0
    through_children: int = 0
    waited: int = 0
    asked: Mapping[str, int] = NO_ASKED
    shadowed: int = 0

    @property
    def is_empty(self) -> bool:
        """Tell whether no acquire was counted."""
        return not (self.rejected or self.waited or self.shadowed)

    def plus(self, other: Tally) -> Tally:
        """Return the sum of the counts, with the larger amount of each limit."""
        return Tally(
            self.rejected + other.rejected,
            self.through_children + other.through_children,
            self.waited + other.waited,
            largest(self.asked, other.asked),
            self.shadowed + other.shadowed,
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
    """Return the sum of tallies."""
    summed = NO_TALLY
    for tally in tallies:
        summed = summed.plus(tally)
    return summed


def tallies_of(
    entity_id: str,
    statuses: Sequence[LimitStatus],
    *,
    has_waited: bool,
    is_shadowed: bool = False,
) -> dict[str, Tally]:
    """Return the tallies of one acquire, by the entity whose bucket counts them.

    ``statuses`` come from the rejection of the acquire; they are empty if it was granted. The
    entity that asked always counts its acquire, even if the caller woke after its deadline, when no
    limit is exceeded any more. A parent counts the rejection if the parent's bucket held too few
    tokens. An acquire that shadow mode let through is no rejection, and only the entity that asked
    counts it.
    """
    if is_shadowed:
        return {entity_id: Tally(waited=1 if has_waited else 0, shadowed=1)}
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
    """Return the rejected amounts. An amount of 0 is left out: a debt or a pause stopped it."""
    amounts: dict[str, int] = {}
    for status in exceeded:
        if status.requested:
            name = usage_name(status.limit_name, status.limit.currency)
            units = _units(status.requested, status.limit.currency)
            amounts[name] = max(units, amounts.get(name, 0))
    return amounts


def _units(requested: int | Decimal, currency: str | None) -> int:
    if currency is None:
        return ceil(requested)
    from zae_limiter.models.money import billionths_of  # rates need no decimal numbers

    return billionths_of(requested)
