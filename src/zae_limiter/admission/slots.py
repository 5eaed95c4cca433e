"""Slots, which bound the calls in flight. A call holds a slot until its block or its lease ends.

A limit with slots does not refill: its balance is the number of free slots. Taken slots are counted
by the moment at which they expire, in steps of a sixth of the lease's TTL, so that thousands of
holders are a handful of numbers. Free slots and held slots always add up to the capacity. A lease
is renewed by moving its slots to a later moment. Expired slots are swept: the next write that takes
or renews slots makes them free. If a bucket is split, its first shard keeps all slots, since no
shard could take back a slot that another shard has given out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, is_slots
from zae_limiter.admission.moves import Move
from zae_limiter.models.timestamps import MILLI

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
    return SlotLedger(image, now_ms).applied()


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


class _Changes:
    """The changes of a planned write to the slots of one limit."""

    __slots__ = ("added", "expired", "freed", "removed", "taken")

    def __init__(self) -> None:
        self.expired: dict[int, int] = {}
        self.removed: dict[int, int] = {}
        self.added: dict[int, int] = {}
        self.freed = self.taken = 0


class SlotLedger:
    """The slots of a bucket while one write is planned. Expired slots are swept first."""

    __slots__ = ("_changes", "_held", "_image", "_now_ms")

    def __init__(self, image: BucketImage, now_ms: int) -> None:
        self._image = image
        self._now_ms = now_ms
        self._held = {key: dict(held) for key, held in (image.holds or {}).items()}
        self._changes: dict[str, _Changes] = {}
        for key, held in self._held.items():
            if expired := {moment: held[moment] for moment in held if moment <= now_ms}:
                changes = self._of(key)
                changes.expired = expired
                changes.freed = sum(expired.values())
                for moment in expired:
                    del held[moment]

    def release(self, hold: SlotHold) -> bool:
        """Free the slots of a hold; return False if the hold has expired."""
        if not self._remove(hold):
            return False
        self._of(hold.key).freed += hold.slots
        return True

    def renew(self, hold: SlotHold) -> int | None:
        """Move the slots of a hold to a later expiry and return it; None if they have expired."""
        if not self._remove(hold):
            return None
        return self._add(hold.key, hold.slots)

    def take(self, key: str, count: int) -> int:
        """Take slots, whether or not they are free, and return their expiry."""
        self._of(key).taken += count
        return self._add(key, count)

    def applied(self) -> BucketImage:
        """Return the bucket after the write."""
        limits = dict(self._image.limits)
        for key, changes in self._changes.items():
            state = limits[key]
            balance = state.balance_milli + (changes.freed - changes.taken) * MILLI
            limits[key] = replace(state, balance_milli=balance)
        return self._image._replace(limits=limits, holds=self._held)

    def move(self, key: str, *, asked: bool) -> Move:
        """Return the move of the number of free slots.

        If ``asked``, the write is refused if too few slots are free.
        """
        changes = self._changes.get(key) or _Changes()
        net = (changes.freed - changes.taken) * MILLI
        return Move(key, -net if asked else None, None, net, None)

    def writes(self) -> list[SlotWrite]:
        """Return the changes of the held slots, for each limit that the write changes."""
        return [
            SlotWrite(key, each.expired, each.removed, each.added)
            for key, each in self._changes.items()
        ]

    def _of(self, key: str) -> _Changes:
        return self._changes.setdefault(key, _Changes())

    def _remove(self, hold: SlotHold) -> bool:
        state = self._image.limits.get(hold.key)
        if state is None or (hold.life, hold.number) != (self._image.life, state.number):
            return False
        held = self._held.get(hold.key, {})
        left = held.get(hold.expires_ms, 0) - hold.slots
        if left < 0:
            return False
        if left:
            held[hold.expires_ms] = left
        else:
            del held[hold.expires_ms]
        removed = self._of(hold.key).removed
        removed[hold.expires_ms] = removed.get(hold.expires_ms, 0) + hold.slots
        return True

    def _add(self, key: str, count: int) -> int:
        moment = expiry_ms(self._image.limits[key].rate.period_ms, self._now_ms)
        held, added = self._held.setdefault(key, {}), self._of(key).added
        held[moment] = held.get(moment, 0) + count
        added[moment] = added.get(moment, 0) + count
        return moment


def take_slots(
    image: BucketImage, amounts_milli: Mapping[str, int], keys: Iterable[str], now_ms: int
) -> tuple[BucketImage, tuple[SlotHold, ...]]:
    """Return the bucket after free slots were taken, and the holds."""
    ledger = SlotLedger(image, now_ms)
    holds = tuple(
        SlotHold(key, count, ledger.take(key, count), image.life, image.limits[key].number)
        for key in keys
        if (count := amounts_milli[key] // MILLI)
    )
    return ledger.applied(), holds


def with_slot_limits(image: BucketImage) -> BucketImage:
    """Return the bucket with ``holds`` for exactly the limits that bound the calls in flight."""
    keys = [key for key, state in image.limits.items() if is_slots(state.rate)]
    if not keys:
        return image if image.holds is None else image._replace(holds=None)
    holds = image.holds or {}
    return image._replace(holds={key: holds.get(key, {}) for key in keys})
