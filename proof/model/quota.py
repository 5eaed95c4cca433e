"""The world of the holds: one bucket with one quota, and the writes that the library plans for it.

Every write is planned by ``zae_limiter.items.buckets.planning``, on the item as a client has
seen it. The model has the store, which checks the conditions of a write and carries it out. A
moment is a second. A hold lives for two of them, unless it is renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from proof.model.delivery import WriteIds
from zae_limiter import ConfigSource, Limit
from zae_limiter.admission.image import BucketImage, LimitState, Rate
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Move
from zae_limiter.admission.quotas import (
    HoldWrite,
    QuotaHold,
    QuotaSettlement,
    expiry_s,
    full_quota,
    quota_terms,
)
from zae_limiter.admission.request import BucketChange, Charge, Renewal, Settlement
from zae_limiter.admission.shards.pressure import Pressure
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.admission.windows import HoldName, QuotaState, end_ms, start_ms
from zae_limiter.items.buckets.cache import CachedBucket, FreshBucket
from zae_limiter.items.buckets.planning import ReadFirst, plan
from zae_limiter.items.buckets.writes import PlannedWrite, WriteContext
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.items.stored.usage.hours import ItemHours
from zae_limiter.models.timestamps import MILLI

KEY, LIFE, DIGEST = "tokens", "life", "digest"
LIMIT = Limit.quota(KEY, 3, per="minute", hold_ttl=2, thresholds=())
RATE = Rate.of(LIMIT)
AMOUNT = RATE.capacity_milli
TERMS, WINDOW = quota_terms(RATE)
EDGE_MS = start_ms(WINDOW, 28_000_000)  # any edge would do
IN_FORCE = InForce((LIMIT,), ConfigSource.SYSTEM, 1)
BUCKET = "entity", "resource"
SHARD_ID = BucketId("namespace", *BUCKET).shard(0)

NO_IDS = WriteIds()
Amounts = tuple[tuple[HoldName, int], ...]  # sorted


class Item(NamedTuple):
    """The stored bucket. An amount that falls to zero stays there, until a write removes it."""

    balance: int
    holds: Amounts = ()
    usage: int = 0
    ids: WriteIds = NO_IDS

    def bucket(self) -> StoredBucket:
        """Return the bucket as the library decodes it."""
        state = LimitState(self.balance, RATE, self.usage, quota=QuotaState(dict(self.holds)))
        image = BucketImage({KEY: state}, IN_FORCE.version, None, 0, life=LIFE)
        return StoredBucket(image, DIGEST, ItemHours(LIFE, 0, None, {KEY: 0}, False))


class Held(NamedTuple):
    """A call in flight, as its client knows it: the id of its charge, and the amount it holds."""

    call: int
    hold: QuotaHold


class Wish(NamedTuple):
    """The changes that a client wants in one write.

    A call that is ``held`` ends at its ``cost``, or is renewed if that is None. ``charge`` is the
    estimate of a call that begins.
    """

    charge: int = 0
    held: Held | None = None
    cost: int | None = None

    @property
    def settled(self) -> int | None:
        """The id of the call that ends."""
        return None if self.held is None or self.cost is None else self.held.call

    def changes(self) -> list[BucketChange]:
        """Return the changes as the library writes them, a charge behind all others."""
        changes: list[BucketChange] = []
        if self.held is not None and self.cost is not None:
            settlement = QuotaSettlement(self.held.hold, self.cost - self.held.hold.units)
            changes.append(Settlement(*BUCKET, IN_FORCE, {}, quotas=(settlement,)))
        elif self.held is not None:
            changes.append(Renewal(*BUCKET, IN_FORCE, renewed_quotas=(self.held.hold,)))
        if self.charge:
            changes.append(Charge(*BUCKET, IN_FORCE, {KEY: self.charge}))
        return changes


class Write(NamedTuple):
    """One conditional write, and what it does for the calls of its client.

    ``taken`` is the hold of a charge that it carries, ``renewed_s`` the new expiry of a renewed
    hold; None if it carries no such thing. A write that may be repeated requires in a repetition
    that the last id is still ``last_op``.
    """

    low: int | None
    high: int | None
    add: int
    put: int | None
    usage: int
    swept: Amounts
    replaced: Amounts
    removed: Amounts
    added: Amounts
    taken: QuotaHold | None
    renewed_s: int | None
    may_repeat: bool
    last_op: int | None = None


Planned = Write | ReadFirst | None  # None: there is nothing to write, and a charge is rejected
Allows = Callable[[Item, Write, int], bool]


@cache
def planned(item: Item, wish: Wish, now_ms: int, *, is_fresh: bool) -> Planned:
    """Return the write that the library plans for an item that was read just now, or before."""
    bucket = item.bucket()
    known = FreshBucket(bucket) if is_fresh else _cached(bucket, now_ms)
    context = WriteContext(SHARD_ID, now_ms, "id", usage_ms=0)
    step = plan(known, wish.changes(), context, EntityLink())
    if isinstance(step, PlannedWrite):
        return _write(step, wish)
    return step if isinstance(step, ReadFirst) else None


def _cached(bucket: StoredBucket, now_ms: int) -> CachedBucket:
    return CachedBucket(bucket, now_ms, {}, Pressure(WHOLE, 0, now_ms, now_ms))


def _write(step: PlannedWrite, wish: Wish) -> Write:
    decision = step.decision
    assert decision is not None, "the write makes the changes"
    holds = next(iter(decision.hold_writes()), HoldWrite(KEY))
    move = next(iter(decision.quota_moves()), Move(KEY, None, None, 0, None))
    taken = [hold for position in decision.carried for hold in decision.taken_quotas(position)]
    moments = decision.renewed(0) or (None,)
    return Write(
        move.low,
        move.high,
        move.add,
        move.put,
        move.consumed_milli,
        _amounts(holds.swept),
        _amounts(holds.put),
        _amounts(holds.removed),
        _amounts(holds.added),
        taken[0] if taken else None,
        moments[0] if wish.held is not None else None,
        step.guarded_retry is not None,
    )


def _amounts(amounts: Mapping[HoldName, int]) -> Amounts:
    return tuple(sorted(amounts.items()))


# --- the store


def allows(item: Item, write: Write, op: int) -> bool:
    """Return whether an item meets the conditions of a write, and does not show its id."""
    holds = dict(item.holds)
    return (
        not item.ids.shows(op)
        and (write.low is None or item.balance >= write.low)
        and (write.high is None or item.balance <= write.high)
        and all(holds.get(name) == seen for name, seen in write.swept)
        and all(holds.get(name, -1) >= units for name, units in write.removed)
        and write.last_op in (None, item.ids.last)
    )


def carried_out(item: Item, write: Write, op: int) -> Item:
    """Return the item after a write."""
    holds = dict(item.holds)
    for name, _ in write.swept:
        holds.pop(name, None)
    holds.update(write.replaced)
    for name, units in write.removed:
        holds[name] = holds.get(name, 0) - units
    for name, units in write.added:
        holds[name] = holds.get(name, 0) + units
    balance = item.balance + write.add if write.put is None else write.put
    return Item(balance, _amounts(holds), item.usage + write.usage, item.ids.after(op))


# --- time


def at_ms(moment: int, edge: int) -> int:
    """Return a moment as the library counts time; ``edge`` is the moment of the window's end."""
    return EDGE_MS + (moment - edge) * 1000


def full_item(now_ms: int) -> Item:
    """Return a bucket of which nothing was used, in the window of a moment."""
    return Item(full_quota(RATE, now_ms).balance_milli)


def is_due(hold: QuotaHold, now_ms: int) -> bool:
    """Tell whether a hold is to be renewed: it expires before its window ends, and time has passed.

    That a process is late with its renewals is part of the model, so there is no other moment.
    """
    lasts = hold.expires_s * 1000 >= end_ms(WINDOW, hold.window)
    return not lasts and expiry_s(TERMS.hold_ttl_s, now_ms) > hold.expires_s


def renewed_in_doubt(hold: QuotaHold, began_ms: int) -> QuotaHold:
    """Return a hold after a renewal of unknown outcome, which counts as made."""
    return hold._replace(expires_s=expiry_s(TERMS.hold_ttl_s, began_ms))


def units(count: int) -> int:
    return count * MILLI
