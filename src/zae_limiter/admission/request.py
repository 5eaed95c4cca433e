"""What is asked of a bucket store, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from zae_limiter.admission.in_force import InForce
from zae_limiter.models.limit import MILLI
from zae_limiter.models.status import LimitStatus


class Charge(NamedTuple):
    """Amounts for one bucket, in the order of its limits in force."""

    entity_id: str
    resource: str
    in_force: InForce
    amounts_milli: tuple[int, ...]


class ChargeRequest(NamedTuple):
    """Charge every bucket or none, judged at one stamp.

    The store reads ``clock`` when it builds the write, and keeps that stamp for its retries.
    ``refreshed`` says that the limits were read after a bucket was found to be newer;
    ``is_acquire`` is False for more tokens within a lease, which is not another admission.
    ``speculative`` lets a store write without reading first, where it can.
    """

    charges: tuple[Charge, ...]
    clock: Callable[[], int]
    refreshed: bool = False
    is_acquire: bool = True
    speculative: bool = True


class Settlement(NamedTuple):
    """Debts (positive) and credits (negative) for one bucket, by stored name.

    ``in_force`` are the limits it was charged under: they rebuild what a debt needs if the
    bucket has been forgotten meanwhile. A credit to a forgotten bucket is not needed, since that
    bucket is full, but it still counts as usage.
    """

    entity_id: str
    resource: str
    in_force: InForce
    amounts_milli: dict[str, int]


class Grant(NamedTuple):
    """All buckets were charged, with just these limits and amounts."""

    charges: tuple[Charge, ...]

    def names(self) -> frozenset[str]:
        """Every limit that one of the buckets has."""
        first = self.charges[0].in_force.known
        return first if len(self.charges) == 1 else first | self.charges[1].in_force.known

    def settlements(self, amounts: Mapping[str, int]) -> tuple[Settlement, ...]:
        """Debts (positive) and credits (negative) for each bucket that has the limit."""
        found = []
        for entity_id, resource, in_force, _ in self.charges:
            owed = {
                key: amounts[name] * MILLI
                for name, key in zip(in_force.names, in_force.keys, strict=True)
                if amounts.get(name)
            }
            if owed:
                found.append(Settlement(entity_id, resource, in_force, owed))
        return tuple(found)


class Rejection(NamedTuple):
    """Nothing was charged. Every limit in force of every bucket is listed."""

    statuses: tuple[LimitStatus, ...]


class StaleLimits:
    """Nothing was charged: a bucket has seen newer configuration. Read it and ask again."""

    __slots__ = ()


STALE = StaleLimits()
ChargeOutcome = Grant | Rejection | StaleLimits
