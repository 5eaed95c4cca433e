"""Changes of a bucket for tests, and what one of them does to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zae_limiter.admission.decide import decide
from zae_limiter.admission.moves import RateLedger, Seen
from zae_limiter.admission.request import BucketChange, Charge, Count, Renewal, Settlement
from zae_limiter.admission.slots import SlotHold, SlotLedger, SlotWrite
from zae_limiter.admission.statuses import prepared
from zae_limiter.models.switches import Switch, SwitchMode
from zae_limiter.models.timestamps import MILLI

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zae_limiter.admission.image import BucketImage, LimitState
    from zae_limiter.admission.in_force import InForce
    from zae_limiter.admission.moves import Move

PLACE = "entity", "resource"
SHADOW, BYPASS = Switch(SwitchMode.SHADOW), Switch(SwitchMode.BYPASS)
JUST_SEEN = Seen(0, {})


def charge_of(in_force: InForce, amounts_milli: Mapping[str, int], **fields: Any) -> Charge:
    """Return a charge of some bucket."""
    return Charge(*PLACE, in_force, amounts_milli, **fields)


def settlement_of(in_force: InForce, amounts_milli: Mapping[str, int], **fields: Any) -> Settlement:
    """Return debts and credits of some bucket."""
    return Settlement(*PLACE, in_force, amounts_milli, **fields)


def renewal_of(in_force: InForce, **held: Any) -> Renewal:
    """Return the renewal of what a call holds of some bucket."""
    return Renewal(*PLACE, in_force, **held)


def count_of(in_force: InForce) -> Count:
    """Return a change that only brings counts."""
    return Count(in_force)


def charged(image: BucketImage | None, charge: Charge, now_ms: int) -> BucketImage | None:
    """Return the bucket after a charge; None if the charge does not fit."""
    target = prepared(image, charge, now_ms)
    assert target is not None, "the bucket has newer limits"
    decision = decide(target, (charge,), now_ms)
    return decision.after() if decision.carried else None


def settled(image: BucketImage | None, change: BucketChange, now_ms: int) -> BucketImage:
    """Return the bucket after a settlement."""
    return decide(image, (change,), now_ms).after()


def carried(changes: Sequence[BucketChange], image: BucketImage, now_ms: int) -> list[int]:
    """Return the positions of the changes that one write carries."""
    return decide(image, changes, now_ms).carried


def sent_moves(
    changes: Sequence[BucketChange], image: BucketImage, now_ms: int, seen: Seen = JUST_SEEN
) -> list[Move]:
    """Return the moves of a write that carries all changes, whether or not they fit."""
    from zae_limiter.admission.decide import Decision

    decision = Decision(image, changes, now_ms, seen)
    for position, change in enumerate(changes):
        (decision.take if change.must_fit else decision.enter)(position)
    return decision.finish().rate_moves()


@dataclass(frozen=True)
class Wanted:
    """Amounts for one limit in one write."""

    charged_milli: int = 0
    owed_milli: int = 0
    returned_milli: int = 0
    asked: bool = False

    @property
    def taken_milli(self) -> int:
        return self.charged_milli + self.owed_milli

    def ledger(self, key: str, state: LimitState, now_ms: int) -> RateLedger:
        """Return the ledger of a write with these amounts."""
        ledger = RateLedger(key, state, now_ms)
        ledger.charged, ledger.owed = self.charged_milli, self.owed_milli
        ledger.returned, ledger.asked = self.returned_milli, self.asked
        return ledger


class SlotPlan:
    """A write that takes, releases and renews slots of the limits of one bucket."""

    def __init__(self, image: BucketImage, now_ms: int) -> None:
        self._image = image
        self._ledgers = {key: SlotLedger(key, image, now_ms) for key in image.holds or {}}
        self._count = 0

    def take(self, key: str, count: int) -> int:
        """Take slots, whether or not they are free; return the moment of their expiry."""
        self._count += 1
        self._ledgers[key].take(BucketChange(), self._count, count * MILLI)
        return self._ledgers[key].holds[self._count].expires_ms

    def release(self, hold: SlotHold) -> bool:
        """Tell whether the slots were still held, and are free now."""
        ledger = self._ledgers.get(hold.key)
        if ledger is None:
            return False
        before = ledger.net_milli
        ledger.release(hold)
        return ledger.net_milli > before

    def renew(self, hold: SlotHold) -> int | None:
        """Return the new expiry of slots; None if they have expired."""
        self._count += 1
        self._ledgers[hold.key].renew(hold, self._count, 0)
        return self._ledgers[hold.key].renewed[self._count, 0]

    def applied(self) -> BucketImage:
        """Return the bucket after the write."""
        limits = {**self._image.limits, **{k: each.after() for k, each in self._ledgers.items()}}
        holds = {key: each.held for key, each in self._ledgers.items()}
        return self._image._replace(limits=limits, holds=holds)

    def move(self, key: str) -> Move:
        return self._ledgers[key].move()

    def writes(self) -> list[SlotWrite]:
        return [each.write() for each in self._ledgers.values() if each.has_effect]
