"""Slots, which bound the calls in flight. A call holds a slot until its block or its lease ends.

A limit with slots does not refill: its balance is the number of free slots. Taken slots are counted
by the moment at which they expire, in steps of a sixth of the lease's TTL, so that thousands of
holders are a handful of numbers. Free slots and held slots always add up to the capacity. A lease
is renewed by moving its slots to a later moment. Expired slots are swept: the next write that takes
or renews slots makes them free. If a bucket is split, its first shard keeps all slots, since no
shard could take back a slot that another shard has given out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.image import BucketImage, LimitState, is_slots
from zae_limiter.admission.moves import Move, room_milli
from zae_limiter.models.timestamps import MILLI

if TYPE_CHECKING:
    from zae_limiter.admission.request import BucketChange

STEPS = 6  # per TTL of a lease: at most eight numbers per limit; a lease lives at least 5/6 of it
# A client gives up a lease this long before its slots expire in the store, since the clocks of two
# clients may differ by half of it.
MARGIN_MS = 1000
RETRY_S = 1.0  # a rejected caller asks again after this time: nobody knows when a block will end


class SlotHold(NamedTuple):
    """Slots of one limit, given by its stored name, that are held until ``expires_ms``.

    ``life`` is the life of the bucket in which they were taken, and ``number`` that of the limit.
    If the bucket was deleted and created again since, or the limit had no slots for a time, its
    slots belong to others.
    """

    key: str
    slots: int
    expires_ms: int
    life: str = ""
    number: int = 0


def expiry_ms(lease_ttl_ms: int, now_ms: int) -> int:
    """Return the expiry of slots that are taken now, rounded down to a whole step."""
    step_ms = -(-lease_ttl_ms // (STEPS * MILLI)) * MILLI
    return (now_ms + lease_ttl_ms) // step_ms * step_ms


def renewal_ms(expires_ms: int, now_ms: int) -> int:
    """Return the moment of the next renewal: half way to the moment at which the lease is lost."""
    return now_ms + max(0, expires_ms - MARGIN_MS - now_ms) // 2


def is_lost(expires_ms: int, now_ms: int) -> bool:
    """Tell whether another client, whose clock may be ahead of this one, may sweep the slots."""
    return now_ms >= expires_ms - MARGIN_MS


def swept(image: BucketImage, now_ms: int) -> BucketImage:
    """Return the bucket after its expired slots became free."""
    holds = image.holds
    if not holds or all(moment > now_ms for held in holds.values() for moment in held):
        return image
    limits, left = dict(image.limits), {}
    for key in holds:
        ledger = SlotLedger(key, image, now_ms)
        limits[key], left[key] = ledger.after(), ledger.held
    return image._replace(limits=limits, holds=left)


def retry_after_s(image: BucketImage, key: str, amount_milli: int, now_ms: int) -> float:
    """Return the seconds until a caller should ask again.

    This is when enough slots have expired, but at most ``RETRY_S``: blocks may end earlier.
    """
    free = image.limits[key].balance_milli
    if free >= amount_milli:
        return 0.0
    for moment, count in sorted((image.holds or {}).get(key, {}).items()):
        free += count * MILLI
        if free >= amount_milli:
            return min(RETRY_S, max(0, moment - now_ms) / 1000)
    return RETRY_S


class SlotWrite(NamedTuple):
    """The changes that one write makes to the held slots of one limit.

    All three map moments of expiry to numbers of slots. ``expired`` slots are deleted, and the
    stored numbers must be the same. ``removed`` numbers are subtracted, and at least as many slots
    must be stored. ``added`` numbers are added.
    """

    key: str
    expired: Mapping[int, int]
    removed: Mapping[int, int]
    added: Mapping[int, int]


class SlotLedger:
    """The changes of one write to the slots of one limit. Expired slots are swept first.

    ``is_doubtful`` says that slots which were to be released or renewed were not there: they have
    expired, or the image is outdated. ``asked`` is True if a charge that must fit is among the
    changes: then the write is refused if too few slots are free.
    """

    asked = False
    is_named = False  # by a charge of the write, which may take none
    is_doubtful = False
    room: int | None = None  # the slots that are left for charges, once ``open`` has counted them

    def __init__(self, key: str, image: BucketImage, now_ms: int) -> None:
        self.key = key
        self.holds: dict[int, SlotHold] = {}  # taken ones, by the position of their charge
        self.renewed: dict[tuple[int, int], int | None] = {}
        self._state = image.limits[key]
        self._life = image.life
        self._now_ms = now_ms
        self.held = dict((image.holds or {}).get(key, {}))
        self._expired = {at: count for at, count in self.held.items() if at <= now_ms}
        for moment in self._expired:
            del self.held[moment]
        self._removed: dict[int, int] = {}
        self._added: dict[int, int] = {}
        self._freed = sum(self._expired.values())
        self._taken = 0

    def release(self, hold: SlotHold) -> None:
        """Free the slots of a hold, unless the hold has expired."""
        if self._remove(hold):
            self._freed += hold.slots

    def renew(self, hold: SlotHold, position: int, at: int) -> None:
        """Move the slots of a hold to a later expiry, unless they have expired.

        The hold is the one ``at`` its place among those of the change.
        """
        moment = self._add(hold.slots) if self._remove(hold) else None
        self.renewed[position, at] = moment

    def enter(self, change: BucketChange, position: int, amount: int) -> None:
        """Take the slots of a charge in shadow mode. Slots are not settled."""
        if change.is_charge:
            self.is_named = True
            self._take(position, amount)

    def open(self, changes: Sequence[BucketChange]) -> int:
        self.room = room_milli(self.after(), self._now_ms)
        return self.room

    def take(self, change: BucketChange, position: int, amount: int, advance: int = 0) -> None:
        self.is_named = True
        terms = self._state.rate.terms
        self.asked = self.asked or terms is None or not terms.soft
        if self.room is not None:
            self.room -= amount
        self._take(position, amount)

    def after(self) -> LimitState:
        """Return the limit after the write; ``held`` are its holds then."""
        net = self.net_milli
        balance = self._state.balance_milli + net
        return replace(self._state, balance_milli=balance) if net else self._state

    def move(self) -> Move:
        """Return the move of the number of free slots."""
        net = self.net_milli
        return Move(self.key, -net if self.asked else None, None, net, None)

    def first_move(self) -> Move:
        """Return the move that creates the limit; slots are no usage."""
        full = self._state.rate.capacity_milli
        return Move(self.key, full, None, 0, full + self.net_milli)

    def write(self) -> SlotWrite:
        """Return the changes of the held slots, which the write makes besides the move."""
        return SlotWrite(self.key, self._expired, self._removed, self._added)

    @property
    def net_milli(self) -> int:
        """The change of the free slots, in thousandths."""
        return (self._freed - self._taken) * MILLI

    @property
    def has_effect(self) -> bool:
        """Whether the write changes what is held."""
        return bool(self._expired or self._removed or self._added)

    def _take(self, position: int, amount_milli: int) -> None:
        """Take slots, whether or not they are free."""
        if amount_milli:
            count = amount_milli // MILLI
            self._taken += count
            moment, number = self._add(count), self._state.number
            self.holds[position] = SlotHold(self.key, count, moment, self._life, number)

    def _remove(self, hold: SlotHold) -> bool:
        left = self.held.get(hold.expires_ms, 0) - hold.slots
        if left < 0 or (hold.life, hold.number) != (self._life, self._state.number):
            self.is_doubtful = True
            return False
        if left:
            self.held[hold.expires_ms] = left
        else:
            del self.held[hold.expires_ms]
        self._removed[hold.expires_ms] = self._removed.get(hold.expires_ms, 0) + hold.slots
        return True

    def _add(self, count: int) -> int:
        moment = expiry_ms(self._state.rate.period_ms, self._now_ms)
        self.held[moment] = self.held.get(moment, 0) + count
        self._added[moment] = self._added.get(moment, 0) + count
        return moment


def slots_in_life(holds: Iterable[SlotHold], image: BucketImage) -> tuple[SlotHold, ...]:
    """Return taken slots with the lives of the bucket and of the limits that they belong to."""
    limits, life = image.limits, image.life
    numbers = {key: limits[key].number for key in limits}
    return tuple([each._replace(life=life, number=numbers.get(each.key, 0)) for each in holds])


def with_slot_limits(image: BucketImage) -> BucketImage:
    """Return the bucket with ``holds`` for exactly the limits that bound the calls in flight."""
    keys = [key for key, state in image.limits.items() if is_slots(state.rate)]
    if not keys:
        return image if image.holds is None else image._replace(holds=None)
    holds = image.holds or {}
    return image._replace(holds={key: holds.get(key, {}) for key in keys})
