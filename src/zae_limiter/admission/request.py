"""Requests to a bucket store, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.in_force import InForce
from zae_limiter.models.timestamps import MILLI

if TYPE_CHECKING:
    from zae_limiter.clock import Deadline
    from zae_limiter.models.status import LimitStatus

NO_NAMES: frozenset[str] = frozenset()


class Charge(NamedTuple):
    """Amounts for one bucket by stored name, in the order of its limits in force.

    Every limit in force is named, with 0 where nothing is taken from it. In the parent's part of a
    cascade ``through_child`` are the names of the limits that the child has, too: their usage is
    counted apart, so that totals over entities count each token once.
    """

    entity_id: str
    resource: str
    in_force: InForce
    amounts_milli: Mapping[str, int]
    through_child: frozenset[str] = NO_NAMES


class ChargeRequest(NamedTuple):
    """Charge every bucket or none, decided at one stamp.

    ``now_ms`` is the stamp of the call. A store that has to wait for its turn reads ``clock`` again
    when it builds the write; it keeps that stamp for its retries.
    ``refreshed`` says that the limits were read again after a bucket had seen newer ones;
    ``is_acquire`` is False for more tokens within a lease, which is not another acquire.
    ``speculative`` lets a store write without reading first, where it can. ``deadline`` is by when
    the acquire must be decided; its configuration has been read within it.
    """

    charges: tuple[Charge, ...]
    clock: Callable[[], int]
    now_ms: int
    refreshed: bool = False
    is_acquire: bool = True
    speculative: bool = True
    deadline: Deadline | None = None


class Settlement(NamedTuple):
    """Debts (positive) and credits (negative) for one bucket, by stored name.

    ``in_force`` are the limits it was charged under: a debt creates the bucket with them if it has
    been deleted meanwhile. A credit to a deleted bucket changes nothing, since that bucket is full,
    but it still counts as usage. ``through_child`` is that of the charge.
    """

    entity_id: str
    resource: str
    in_force: InForce
    amounts_milli: Mapping[str, int]
    through_child: frozenset[str] = NO_NAMES


class Grant(NamedTuple):
    """All buckets were charged, with just these limits and amounts."""

    charges: tuple[Charge, ...]

    def names(self) -> frozenset[str]:
        """Return the names of all limits of the buckets."""
        first = self.charges[0].in_force.name_set
        return first if len(self.charges) == 1 else first | self.charges[1].in_force.name_set

    def settlements(self, amounts: Mapping[str, int]) -> tuple[Settlement, ...]:
        """Return debts (positive) and credits (negative) for each bucket that has the limit."""
        found = []
        for entity_id, resource, in_force, _, through_child in self.charges:
            owed = {
                key: amounts[name] * MILLI
                for name, key in zip(in_force.names, in_force.keys, strict=True)
                if amounts.get(name)
            }
            if owed:
                found.append(Settlement(entity_id, resource, in_force, owed, through_child))
        return tuple(found)


class Rejection(NamedTuple):
    """Nothing was charged. Every limit in force of every bucket is listed."""

    statuses: tuple[LimitStatus, ...]


class StaleLimits(NamedTuple):
    """Nothing was charged: a bucket has seen newer configuration. Read it, then charge again.

    ``version`` is the configuration version that the bucket has seen.
    """

    version: int


ChargeOutcome = Grant | Rejection | StaleLimits
