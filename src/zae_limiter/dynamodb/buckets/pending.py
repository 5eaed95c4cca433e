"""What callers want of a bucket, on its way into a write, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, LimitState, is_paused, level_milli
from zae_limiter.admission.in_force import InForce, plain_name
from zae_limiter.admission.moves import Move, Wanted, held_milli, surplus_milli
from zae_limiter.admission.request import NO_NAMES, Settlement, StaleLimits
from zae_limiter.admission.reservation import (
    Reservation,
    ahead_milli,
    bound_ms,
    fits_by,
    reserved,
)
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.admission.slots import SlotHold, swept
from zae_limiter.clock import Clock
from zae_limiter.concurrency.waiter import Wakeable
from zae_limiter.dynamodb.buckets.cache import CachedBucket
from zae_limiter.dynamodb.items.bucket import BucketId, ShardId, StoredBucket
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.transport.calls import Deadline


class BucketChange(NamedTuple):
    """What one caller wants of one bucket: a charge, or debts and credits (negative amounts).

    Amounts are by stored name. A charge names every limit in force, with 0 where it takes nothing.
    ``admitted`` is what the change adds to the bucket's count of admitted acquires. ``refreshed``
    says that the limits were read again after the bucket was found to have newer ones.
    ``through_child`` are the names of the limits that a child of the entity counts, too.
    ``until_ms`` makes a charge a reservation; ``forfeits`` is that of a settlement. ``released``
    and ``renewed`` are slots that the caller holds. ``is_count`` is a change that has nothing but
    the counts of this client written; it creates the bucket if there is none.
    """

    in_force: InForce
    amounts_milli: Mapping[str, int]
    is_charge: bool
    admitted: int = 0
    refreshed: bool = False
    through_child: frozenset[str] = NO_NAMES
    until_ms: int | None = None
    forfeits: bool = False
    released: tuple[SlotHold, ...] = ()
    renewed: tuple[SlotHold, ...] = ()
    is_count: bool = False

    @property
    def held_slots(self) -> tuple[SlotHold, ...]:
        """The slots that the change gives back or renews."""
        return self.released or self.renewed

    @classmethod
    def of_settlement(cls, settlement: Settlement, admitted: int = 0) -> BucketChange:
        return cls(
            settlement.in_force,
            settlement.amounts_milli,
            False,
            admitted + settlement.admitted,
            through_child=settlement.through_child,
            forfeits=settlement.forfeits,
            released=settlement.released,
        )

    def without_absent_limits(self, image: BucketImage) -> BucketChange:
        """Drop credits for limits that the bucket does not have: an absent limit is full."""
        amounts = self.amounts_milli
        if self.is_charge or amounts.keys() <= image.limits.keys():
            return self
        stored = {key: amount for key, amount in amounts.items() if key in image.limits}
        return self._replace(amounts_milli=stored)

    def to_absent_limits(self, image: BucketImage) -> BucketChange | None:
        """Return the credits for limits that the bucket does not have; None if there are none."""
        amounts = self.amounts_milli
        if self.is_charge or amounts.keys() <= image.limits.keys():
            return None
        absent = {key: amount for key, amount in amounts.items() if key not in image.limits}
        return self._replace(amounts_milli=absent)

    def can_share_write(self, other: BucketChange) -> bool:
        """Tell whether one condition holds for both changes."""
        mine, theirs = self.in_force, other.in_force
        if mine is not theirs and (mine.keys, mine.rates, mine.keep_ms, mine.version) != (
            theirs.keys,
            theirs.rates,
            theirs.keep_ms,
            theirs.version,
        ):
            return False
        return self.refreshed == other.refreshed or not (self.is_charge and other.is_charge)


class Selection(NamedTuple):
    """Positions of the changes that go into a write, and of those that do not fit."""

    taken: list[int]
    skipped: list[int]


def fits_alone(change: BucketChange, image: BucketImage, now_ms: int) -> bool:
    """Tell whether a charge fits if nothing else is written with it; never during a pause."""
    if is_paused(image, now_ms):
        return False
    if image.holds:
        image = swept(image, now_ms)
    limits = image.limits
    if change.until_ms is not None:
        by_ms = bound_ms(change.until_ms, now_ms)
        return all(
            fits_by(limits[key], amount, now_ms, by_ms)
            for key, amount in change.amounts_milli.items()
        )
    for key, amount in change.amounts_milli.items():
        if held_milli(limits[key], 0, now_ms) < amount:
            return False
    return True


def select(changes: Sequence[BucketChange], image: BucketImage, now_ms: int) -> Selection:
    """Take all credits and debts, then the charges that fit, in the order of arrival.

    During a pause no charge does.
    """
    if len(changes) == 1 and changes[0].is_charge:
        return Selection([0], []) if fits_alone(changes[0], image, now_ms) else Selection([], [0])
    settled = total(
        change.without_absent_limits(image) for change in changes if not change.is_charge
    )
    held = {
        key: held_milli(image.limits[key], wanted.returned_milli, now_ms) - wanted.owed_milli
        for key, wanted in settled.items()
    }
    selection, paused = Selection([], []), is_paused(image, now_ms)
    for position, change in enumerate(changes):
        if not change.is_charge:
            selection.taken.append(position)
            continue
        if paused:
            selection.skipped.append(position)
            continue
        for key, amount in change.amounts_milli.items():
            if key not in held:
                held[key] = held_milli(image.limits[key], 0, now_ms)
            if held[key] + _reserved_ahead(change, image.limits[key], amount, now_ms) < amount:
                selection.skipped.append(position)
                break
        else:
            for key, amount in change.amounts_milli.items():
                held[key] -= amount
            selection.taken.append(position)
    return selection


def _reserved_ahead(change: BucketChange, state: LimitState, amount_milli: int, now_ms: int) -> int:
    """Return what a reservation may count on beyond the level; less than nothing if it never fits.

    Of a limit that it does not name it counts on nothing.
    """
    if change.until_ms is None or not amount_milli:
        return 0
    if amount_milli > state.rate.capacity_milli:
        return -state.rate.capacity_milli
    return ahead_milli(state.rate, now_ms, bound_ms(change.until_ms, now_ms))


def total_at(changes: Iterable[BucketChange], image: BucketImage, now_ms: int) -> dict[str, Wanted]:
    """Add up what several changes want of each limit, and the level that reservations require.

    Each charge must fit, together with all before it, by the moment up to which it waits.
    """
    changes = list(changes)
    wanted = total(changes)
    if not any(change.until_ms is not None for change in changes):
        return wanted
    charged: dict[str, int] = {}
    needed: dict[str, int] = {}
    for change in changes:
        if not change.is_charge:
            continue
        for key, amount in change.amounts_milli.items():
            charged[key] = charged.get(key, 0) + amount
            level = charged[key] - _reserved_ahead(change, image.limits[key], amount, now_ms)
            needed[key] = max(level, needed.get(key, level))
    return {
        key: each._replace(needed_milli=needed[key]) if key in needed else each
        for key, each in wanted.items()
    }


def total(changes: Iterable[BucketChange]) -> dict[str, Wanted]:
    """Add up what several changes want of each limit."""
    changes = list(changes)
    if len(changes) == 1 and changes[0].is_charge:
        amounts = changes[0].amounts_milli
        return {key: Wanted(amount, 0, 0, True) for key, amount in amounts.items()}
    charged: dict[str, int] = {}
    settled: dict[str, tuple[int, int]] = {}  # what is owed, and what is returned
    uncounted: dict[str, int] = {}
    for change in changes:
        if change.is_charge:
            for key, amount in change.amounts_milli.items():
                charged[key] = charged.get(key, 0) + amount
            continue
        if change.forfeits:
            for key, amount in change.amounts_milli.items():
                uncounted[key] = uncounted.get(key, 0) - amount
            continue
        for key, amount in change.amounts_milli.items():
            owed, returned = settled.get(key) or (0, 0)
            settled[key] = (owed + amount, returned) if amount > 0 else (owed, returned - amount)
    return {
        key: Wanted(
            charged.get(key, 0),
            *settled.get(key, (0, 0)),
            key in charged,
            uncounted_milli=uncounted.get(key, 0),
        )
        for key in charged | settled | uncounted
    }


def through_children(changes: Iterable[BucketChange]) -> dict[str, int]:
    """Add up what changes take from each limit on behalf of children, net of credits."""
    sums: dict[str, int] = {}
    for change in changes:
        if names := change.through_child:
            for key, amount in change.amounts_milli.items():
                if amount and plain_name(key) in names:
                    sums[key] = sums.get(key, 0) + amount
    return sums


class Applied(NamedTuple):
    """The change is committed; ``image`` is the bucket or shard after the write.

    ``is_whole`` says that it is the whole bucket. Two things are left to other shards:
    ``spilled_milli`` is the part of a credit that the shard has no room for, ``is_short`` says that
    a debt has left the shard below zero. ``reservation`` is that of a charge that waits.
    ``moments`` are those at which the slots of the change expire, see ``PlannedSlots``; None if it
    has none. ``life`` is that of the bucket they belong to.
    """

    image: BucketImage | None
    spilled_milli: Mapping[str, int] = {}
    is_short: bool = False
    is_whole: bool = True
    reservation: Reservation | None = None
    moments: tuple[int | None, ...] | None = None
    life: str = ""


class Rejected(NamedTuple):
    """The charge does not fit into the bucket or shard as it was at the stamp."""

    image: BucketImage
    now_ms: int
    shard: Shard = WHOLE


class ShardMerged:
    """Nothing was written: the shard does not exist any more."""

    __slots__ = ()


SHARD_MERGED = ShardMerged()
Outcome = Applied | Rejected | ShardMerged | StaleLimits | ZAELimiterError


def applied_outcomes(
    changes: Sequence[BucketChange], bucket: StoredBucket, now_ms: int
) -> list[Applied]:
    """Return the outcomes of changes that were written together, given the item after the write."""
    image = bucket.image
    if any(change.until_ms is not None for change in changes):
        return _with_reservations(changes, bucket, now_ms)
    if bucket.shard.n == 1:
        return [Applied(image)] * len(changes)
    surplus = {key: max(0, surplus_milli(state, now_ms)) for key, state in image.limits.items()}
    in_debt = {key for key, state in image.limits.items() if level_milli(state, now_ms) < 0}
    outcomes = []
    for change in changes:
        spilled = {} if change.is_charge else _spilled(change, surplus)
        is_short = not change.is_charge and any(
            amount > 0 and key in in_debt for key, amount in change.amounts_milli.items()
        )
        if is_short:
            in_debt = set()  # one repayment covers the debts of all
        outcomes.append(Applied(image, spilled, is_short, False))
    return outcomes


def _with_reservations(
    changes: Sequence[BucketChange], bucket: StoredBucket, now_ms: int
) -> list[Applied]:
    """Return the outcomes of a write with reservations: each is due before those behind it."""
    image, shard = bucket.image, bucket.shard
    as_charges = [change._replace(until_ms=None) for change in changes]
    outcomes = applied_outcomes(as_charges, bucket, now_ms)
    behind: dict[str, int] = {}
    for position in range(len(changes) - 1, -1, -1):
        change = changes[position]
        if not change.is_charge:
            continue
        amounts = change.amounts_milli
        if change.until_ms is not None:
            place = image.writes, position
            outcomes[position] = outcomes[position]._replace(
                reservation=reserved(image, amounts, place, behind, shard)
            )
        for key, amount in amounts.items():
            behind[key] = behind.get(key, 0) + amount
    return outcomes


def _spilled(change: BucketChange, surplus: dict[str, int]) -> dict[str, int]:
    """Take the part of a change's credits that overflowed out of ``surplus``."""
    if change.forfeits:
        return {}
    spilled = {}
    for key, amount in change.amounts_milli.items():
        lost = min(-amount, surplus.get(key, 0))
        if lost > 0:
            spilled[key] = lost
            surplus[key] -= lost
    return spilled


class ChargeDraft(NamedTuple):
    """The moves of a charge, planned from a cache entry at ``now_ms``, and whether it fits."""

    cached: CachedBucket
    moves: list[Move]
    now_ms: int
    fits: bool


class PendingChange:
    """A change that waits for its write.

    ``outcome`` is None until ``resolve`` sets it. A waiter that is woken without an outcome is the
    next leader of its write queue. ``look_first`` asks for a read before the write. ``draft`` saves
    the write loop planning the charge again if the cache entry has not changed meanwhile.
    """

    __slots__ = (
        "bucket_id",
        "change",
        "clock",
        "deadline",
        "draft",
        "is_counted",
        "look_first",
        "outcome",
        "shard_id",
        "waiter",
    )

    def __init__(
        self,
        bucket_id: BucketId,
        change: BucketChange,
        clock: Clock,
        deadline: Deadline,
        look_first: bool = False,
    ) -> None:
        self.bucket_id = bucket_id
        self.shard_id = ShardId(*bucket_id, 0)
        self.change = change
        self.clock = clock
        self.deadline = deadline
        self.waiter: Wakeable | None = None
        self.look_first = look_first
        self.is_counted = True  # False for writes that no caller has asked for
        self.draft: ChargeDraft | None = None
        self.outcome: Outcome | None = None

    def redirect(self, number: int) -> None:
        """Send the change to another shard."""
        self.shard_id = ShardId(*self.bucket_id, number)
        self.outcome = None
        self.waiter = None
        self.draft = None

    def resolve(self, outcome: Outcome) -> Outcome:
        """Set the outcome, and return it."""
        self.outcome = outcome
        return outcome

    def wake(self) -> bool:
        """Wake the waiter; False if its event loop is closed."""
        return self.waiter is not None and self.waiter.wake()

    def can_share_write(self, leader: PendingChange) -> bool:
        """Tell whether one write may carry both."""
        return (
            self.clock is leader.clock
            and self.look_first == leader.look_first
            and self.change.can_share_write(leader.change)
        )
