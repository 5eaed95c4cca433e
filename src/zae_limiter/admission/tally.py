"""Acquires of a bucket that were rejected or shadowed, or have waited, and what refused them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.naming import usage_name
from zae_limiter.refusal import LimitedBy, limited_by

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.admission.request import AcquireEnd
    from zae_limiter.models.status import LimitStatus

NO_ASKED: Mapping[str, int] = MappingProxyType({})


class Refusals(NamedTuple):
    """What refused the acquires of one bucket in one hour.

    ``latest`` refused the last one, at the second ``at_s``. ``frequent`` has refused most of them,
    by a vote of the majority: each refusal by another one takes one of its ``votes``. A name that
    is empty is that of the bucket's own entity or resource, which every store has already.
    """

    latest: LimitedBy
    at_s: int
    frequent: LimitedBy
    votes: int

    def plus(self, other: Refusals) -> Refusals:
        """Return the later and the more frequent one of both."""
        if self.frequent == other.frequent == self.latest == other.latest:  # nearly always
            at_s = max(self.at_s, other.at_s)
            return Refusals(self.latest, at_s, self.frequent, self.votes + other.votes)
        last = self if self.at_s > other.at_s else other
        most, least = (self, other) if self.votes > other.votes else (other, self)
        votes = most.votes - least.votes
        if self.frequent == other.frequent:
            votes = most.votes + least.votes
        return Refusals(last.latest, last.at_s, most.frequent, votes)

    def with_names(self, entity_id: str, resource: str) -> Refusals:
        """Fill empty names in with those of the bucket that has stored this."""
        bucket = entity_id, resource
        return self._replace(
            latest=self.latest.within(*bucket), frequent=self.frequent.within(*bucket)
        )

    def stored(self) -> list[Any]:
        """Return plain values; ``frequent`` is left out if it is ``latest``."""
        values = [self.at_s, self.votes, _short(self.latest)]
        return values if self.frequent == self.latest else [*values, _short(self.frequent)]

    @classmethod
    def from_stored(
        cls, at_s: int, votes: int, latest: Sequence[str], frequent: Sequence[str] | None = None
    ) -> Refusals:
        """Return what ``stored`` has written."""
        return cls(_long(latest), at_s, _long(latest if frequent is None else frequent), votes)


def _short(refused: LimitedBy) -> list[str]:
    """Return the limit, the resource and the entity, without empty ones at the end."""
    values = [refused.limit, refused.resource, refused.entity_id]
    while not values[-1]:
        values.pop()
    return values


def _long(values: Sequence[str]) -> LimitedBy:
    limit, resource, entity_id = (*values, "", "")[:3]
    return LimitedBy(entity_id, resource, limit)


class Tally(NamedTuple):
    """Counts of one bucket in one hour.

    ``rejected`` counts acquires that ended in a rejection. ``through_children`` of them were
    acquires of children, and ``as_further`` of them named the resource as a further one; the child,
    or the first resource, counts them as well. ``waited`` counts acquires that waited, whether they
    were granted or rejected. ``asked`` is the largest rejected amount of each limit: whole tokens
    by plain name, and billionths of a budget by the name of its usage. ``shadowed`` counts acquires
    that would have been rejected and that shadow mode let through. ``refusals`` says what rejected
    them. These are noted by clients and approximate.

    ``elsewhere`` is exact, since the charge itself counts it: the admitted acquires that are calls
    of another bucket, that of the child or of the first resource.
    """

    rejected: int = 0
    through_children: int = 0
    waited: int = 0
    asked: Mapping[str, int] = NO_ASKED
    shadowed: int = 0
    as_further: int = 0
    elsewhere: int = 0
    refusals: Refusals | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether no acquire was counted."""
        return not (self.rejected or self.waited or self.shadowed or self.elsewhere)

    @property
    def rejected_elsewhere(self) -> int:
        """The rejected acquires that are calls of another bucket."""
        return self.through_children + self.as_further

    def plus(self, other: Tally) -> Tally:
        """Return the sum of the counts, with the larger amount of each limit."""
        return Tally(
            self.rejected + other.rejected,
            self.through_children + other.through_children,
            self.waited + other.waited,
            largest(self.asked, other.asked),
            self.shadowed + other.shadowed,
            self.as_further + other.as_further,
            self.elsewhere + other.elsewhere,
            both_refusals(self.refusals, other.refusals),
        )

    def with_calls_elsewhere(self, count: int) -> Tally:
        """Count admitted acquires that are calls of another bucket.

        The charge of every parent does this. So it is written out, instead of ``_replace``.
        """
        return Tally(
            self.rejected,
            self.through_children,
            self.waited,
            self.asked,
            self.shadowed,
            self.as_further,
            self.elsewhere + count,
            self.refusals,
        )

    def with_names(self, entity_id: str, resource: str) -> Tally:
        """Return the tally with what refused by full names, to be added to other buckets'."""
        if self.refusals is None:
            return self
        return self._replace(refusals=self.refusals.with_names(entity_id, resource))

    def stored(self) -> tuple[Any, ...]:
        """Return plain values; those that are 0 or None at the end are left out."""
        refusals = None if self.refusals is None else self.refusals.stored()
        values = (*self[:3], dict(self.asked), *self[4:-1], refusals)
        size = len(values)
        while size > LEAST_STORED and not values[size - 1]:
            size -= 1
        return values[:size]

    @classmethod
    def from_stored(cls, values: Sequence[Any]) -> Tally:
        """Return what ``stored`` has written."""
        tally = cls(*values) if any(values) else NO_TALLY
        if tally.refusals is None:
            return tally
        return tally._replace(refusals=Refusals.from_stored(*values[-1]))


LEAST_STORED = 4  # values that are stored also if they are empty
NO_TALLY = Tally()


def largest(first: Mapping[str, int], second: Mapping[str, int]) -> Mapping[str, int]:
    """Return the larger amount of each limit."""
    if not second:
        return first
    amounts = dict(first)
    for name, amount in second.items():
        amounts[name] = max(amount, amounts.get(name, 0))
    return amounts


def both_refusals(first: Refusals | None, second: Refusals | None) -> Refusals | None:
    """Return the later and the more frequent one of two; None if there is none."""
    if first is None or second is None:
        return first or second
    return first.plus(second)


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    summed = NO_TALLY
    for tally in tallies:
        summed = summed.plus(tally)
    return summed


def tallies_of(ended: AcquireEnd, now_ms: int) -> dict[str, Tally]:
    """Return the tallies of one acquire on one resource, by the entity whose bucket counts them.

    The statuses come from the rejection of the acquire; they are empty if it was granted. The
    entity that asked always counts its acquire, even if the caller woke after its deadline, when no
    limit is exceeded any more. A parent counts the rejection if the parent's bucket held too few
    tokens. An acquire that shadow mode let through is no rejection, and only the entity that asked
    counts it.

    The bucket that asked stores what refused the acquire as a whole, and any other bucket which of
    its own limits did.
    """
    entity_id, statuses, at_s = ended.buckets[0][0], ended.statuses, now_ms // 1000
    if ended.is_shadowed:
        return {entity_id: Tally(waited=1 if ended.has_waited else 0, shadowed=1)}
    exceeded = [status for status in statuses if status.exceeded]
    is_rejected = bool(statuses) or ended.refused_by is not None
    rejected, waited = int(is_rejected), int(ended.has_waited)
    refused_by = ended.refused_by or limited_by(exceeded)
    as_further = rejected if ended.is_further else 0
    refusals = _refusals(refused_by, entity_id, ended.resource, at_s)
    own = Tally(rejected, 0, waited, _asked(exceeded), 0, as_further, 0, refusals)
    tallies = {entity_id: own}
    for status in exceeded:
        parent_id = status.entity_id
        if parent_id not in tallies:
            of_parent = [each for each in exceeded if each.entity_id == parent_id]
            refusals = _refusals(limited_by(of_parent), parent_id, ended.resource, at_s)
            tallies[parent_id] = Tally(1, 1, 0, _asked(of_parent), refusals=refusals)
    return tallies


def _refusals(
    refused_by: LimitedBy | None, entity_id: str, resource: str, at_s: int
) -> Refusals | None:
    """Return what refused one acquire, without the names that the bucket has itself."""
    if refused_by is None:
        return None
    by_entity, by_resource, limit = refused_by
    short = LimitedBy(
        "" if by_entity == entity_id else by_entity,
        "" if by_resource == resource else by_resource,
        limit,
    )
    return Refusals(short, at_s, short, 1)


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
