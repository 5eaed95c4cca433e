"""What is asked of a bucket store, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.admission.in_force import InForce
from zae_limiter.models.status import LimitStatus


class Charge(NamedTuple):
    """Amounts for one bucket, in the order of its limits in force."""

    entity_id: str
    resource: str
    in_force: InForce
    amounts_milli: tuple[int, ...]


class ChargeRequest(NamedTuple):
    """Charge every bucket or none, judged at one stamp.

    ``refreshed`` says that the limits were read after the bucket was found to be newer.
    """

    charges: tuple[Charge, ...]
    now_ms: int
    refreshed: bool = False


class Grant(NamedTuple):
    """All buckets were charged. ``keys`` are the stored names of each bucket's limits."""

    keys: tuple[tuple[str, ...], ...]


class Rejection(NamedTuple):
    """Nothing was charged. Every limit in force of every bucket is listed."""

    statuses: tuple[LimitStatus, ...]


class StaleLimits(NamedTuple):
    """Nothing was charged: a bucket has seen newer configuration. Read it and ask again."""

    entity_ids: tuple[str, ...]


ChargeOutcome = Grant | Rejection | StaleLimits


class Settlement(NamedTuple):
    """Debts (positive) and credits (negative) for one bucket, by stored name.

    ``in_force`` rebuilds the bucket for a debt if it has been forgotten meanwhile; a credit
    to a forgotten bucket is dropped, since that bucket is full.
    """

    entity_id: str
    resource: str
    in_force: InForce
    amounts_milli: dict[str, int]
