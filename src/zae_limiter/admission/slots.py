"""Slots: limits on calls in flight, each held until its block ends or its lease expires.

Such a limit does not refill: its balance is the number of free slots. The slots that are taken are
counted by the moment at which they expire, in steps of a sixth of the lease's TTL, so that
thousands of holders are a handful of numbers. Free slots and held ones always add up to the
capacity. A lease is renewed by moving its slots to a later moment. Slots that have expired become
free with the next write that takes or renews some (they are swept). All slots of a bucket that has
been split are in its first shard: what one shard has lent, no other could call in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, is_slots
from zae_limiter.admission.moves import Move
from zae_limiter.models.timestamps import MILLI

STEPS = 6  # in the TTL of a lease: at most eight numbers per limit, and a lease lives 5/6 of it
# A lease is lost that long before its slots expire in the store. Clocks may differ by half of it.
MARGIN_MS = 1000
RETRY_S = 1.0  # until a rejected caller should ask again: the end of a block cannot be foretold


class SlotHold(NamedTuple):
    """Slots of one limit, by stored name, that are held until ``expires_ms``.

    ``life`` is that of the bucket they were taken from: one that was created again since has given
    its slots to others.
    """

    key: str
    slots: int
    expires_ms: int
    life: str = ""


def expiry_ms(lease_ttl_ms: int, now_ms: int) -> int:
    """Return when slots expire that are taken now: a whole number of steps and of seconds."""
    step_ms = -(-lease_ttl_ms // (STEPS * MILLI)) * MILLI
    return (now_ms + lease_ttl_ms) // step_ms * step_ms


def renewal_ms(expires_ms: int, now_ms: int) -> int:
    """Return when to renew: half way to the moment at which the lease is lost."""
    return now_ms + max(0, expires_ms - MARGIN_MS - now_ms) // 2


def is_lost(expires_ms: int, now_ms: int) -> bool:
    """Whether slots may be swept by another client, whose clock may be ahead of this one."""
    return now_ms >= expires_ms - MARGIN_MS


def swept(image: BucketImage, now_ms: int) -> BucketImage:
    """Return the bucket with the slots free that have expired."""
    holds = image.holds
    if not holds or all(moment > now_ms for held in holds.values() for moment in held):
        return image
    return SlotLedger(image, now_ms).applied()


def retry_after_s(image: BucketImage, key: str, amount_milli: int, now_ms: int) -> float:
    """Return when a caller should ask again: soon, or once enough slots have expired by then."""
    free = image.limits[key].balance_milli
    if free >= amount_milli:
        return 0.0
    for moment, count in sorted((image.holds or {}).get(key, {}).items()):
        free += count * MILLI
        if free >= amount_milli:
            return min(RETRY_S, max(0, moment - now_ms) / 1000)
    return RETRY_S


class SlotWrite(NamedTuple):
    """What one write does to the slots of one limit, besides the number of free ones.

    ``expired`` are removed, and must be as they were seen. From the moments in ``removed`` slots
    are taken away, so many must be there; to those in ``added`` they are added.
    """

    key: str
    expired: Mapping[int, int]
    removed: Mapping[int, int]
    added: Mapping[int, int]


class _Changes:
    """What a write changes about one limit, while it is planned."""

    __slots__ = ("added", "expired", "freed", "removed", "taken")

    def __init__(self) -> None:
        self.expired: dict[int, int] = {}
        self.removed: dict[int, int] = {}
        self.added: dict[int, int] = {}
        self.freed = self.taken = 0


class SlotLedger:
    """The slots of a bucket while one write is planned. Expired ones are swept first."""

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
        """Free slots; False if they have expired, and are free or held by another caller."""
        if not self._remove(hold):
            return False
        self._of(hold.key).freed += hold.slots
        return True

    def renew(self, hold: SlotHold) -> int | None:
        """Move slots to a later moment and return it; None if they have expired."""
        if not self._remove(hold):
            return None
        return self._add(hold.key, hold.slots)

    def take(self, key: str, count: int) -> int:
        """Take slots, whether or not they are free, and return when they expire."""
        self._of(key).taken += count
        return self._add(key, count)

    def applied(self) -> BucketImage:
        """Return the bucket after the write."""
        limits = dict(self._image.limits)
        for key, changes in self._changes.items():
            state = limits[key]
            balance = state.balance_milli + (changes.freed - changes.taken) * MILLI
            limits[key] = state._replace(balance_milli=balance)
        return self._image._replace(limits=limits, holds=self._held)

    def move(self, key: str, *, asked: bool) -> Move:
        """Return the move of the number of free slots; refused if too few are, where ``asked``."""
        changes = self._changes.get(key) or _Changes()
        net = (changes.freed - changes.taken) * MILLI
        return Move(key, -net if asked else None, None, net, None)

    def writes(self) -> list[SlotWrite]:
        """Return the rest of the write, for each limit that it changes."""
        return [
            SlotWrite(key, each.expired, each.removed, each.added)
            for key, each in self._changes.items()
        ]

    def _of(self, key: str) -> _Changes:
        return self._changes.setdefault(key, _Changes())

    def _remove(self, hold: SlotHold) -> bool:
        if hold.life != self._image.life:
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
    """Return the bucket after slots were taken that are free, and the holds."""
    ledger = SlotLedger(image, now_ms)
    holds = tuple(
        SlotHold(key, count, ledger.take(key, count), image.life)
        for key in keys
        if (count := amounts_milli[key] // MILLI)
    )
    return ledger.applied(), holds


def with_slot_limits(image: BucketImage) -> BucketImage:
    """Return the bucket with holds of just those limits that bound the calls in flight."""
    keys = [key for key, state in image.limits.items() if is_slots(state.rate)]
    if not keys:
        return image if image.holds is None else image._replace(holds=None)
    holds = image.holds or {}
    return image._replace(holds={key: holds.get(key, {}) for key in keys})
