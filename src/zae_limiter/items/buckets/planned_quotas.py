"""The quotas of a group of changes in one write: settled, renewed, swept and taken together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move
from zae_limiter.admission.quotas import (
    HoldWrite,
    QuotaHold,
    QuotaLedger,
    QuotaMove,
    current_window,
    has_same_windows,
)
from zae_limiter.admission.windows import window_of
from zae_limiter.items.buckets.changes import BucketChange

RenewedHolds = tuple[int | None, ...]


class PlannedQuotas:
    """Plans the quotas on the bucket as it was seen; the conditions of the write check that.

    ``image`` is the bucket after the settlements, before charges take anything. ``is_doubtful``
    says that a hold was not seen there: it has expired, or the image is outdated. ``has_lost`` says
    that a settlement is of a quota that the bucket does not have, or does not have any more.
    ``needs_latest`` says that the write is right only if no other write came since.
    """

    def __init__(self, image: BucketImage, changes: Sequence[BucketChange], now_ms: int) -> None:
        self._seen = image
        self._changes = changes
        self._now_ms = now_ms
        self._keys = [key for key, state in image.limits.items() if state.quota is not None]
        self.is_doubtful = self.gives = False
        self.has_lost = self.needs_latest = False
        self.holds: dict[int, tuple[QuotaHold, ...]] = {}
        self.renewed: dict[int, RenewedHolds] = {}
        self._planned: dict[str, QuotaMove] = {}
        limits = dict(image.limits)
        for key in self._keys:
            ledger = self._settled(key, charges=self._may_turn(key))
            self.is_doubtful = self.is_doubtful or ledger.is_doubtful
            limits[key] = ledger.finish(asked=False).applied(limits[key])
        self.image = image._replace(limits=limits)
        for change in changes:
            self.gives = self.gives or bool(change.held_quotas)
            for each in change.quotas:
                self.has_lost = self.has_lost or change.is_absent(image, each.hold.key)

    def _may_turn(self, key: str) -> bool:
        """Tell whether a charge of the group begins a window.

        Costs that are settled in that window leave less room for charges.
        """
        state = self._seen.limits[key]
        if window_of(state.balance_milli) == current_window(state, self._now_ms):
            return False
        return any(each.is_charge and each.amounts_milli.get(key) for each in self._changes)

    def take(self, positions: Sequence[int]) -> None:
        """Plan the write with the charges at these positions, behind all settlements."""
        changes = self._changes
        charging = [position for position in positions if changes[position].is_charge]
        holds: dict[int, list[QuotaHold]] = {position: [] for position in charging}
        for key in self._keys:
            charges = any(
                changes[at].amounts_milli.get(key) for at in charging if not changes[at].forfeits
            )
            ledger = self._settled(key, charges=charges)
            for position in charging:
                change = changes[position]
                if key not in change.in_force.quota_keys:
                    continue
                amount = change.amounts_milli[key]
                of_child = change.of_child(key)
                if change.forfeits:
                    ledger.count(amount, of_child.units)
                else:
                    held = ledger.take_with_child(of_child, amount, as_debt=change.is_debt)
                    holds[position] += held
            self.needs_latest = self.needs_latest or ledger.gives_unheld
            asked = any(key in changes[at].amounts_milli for at in charging if changes[at].must_fit)
            self._planned[key] = ledger.finish(asked=asked)
        self.holds = {position: tuple(each) for position, each in holds.items() if each}

    def _settled(self, key: str, *, charges: bool) -> QuotaLedger:
        """Return the ledger of a quota with the settlements and renewals of all changes."""
        state = self._seen.limits[key]
        ledger = QuotaLedger(key, state, self._now_ms, charges=charges, life=self._seen.life)
        for position, change in enumerate(self._changes):
            for each in change.quotas:
                if each.hold.key == key:
                    ledger.settle(each, is_same=self._is_same(key, change))
            if change.forfeits and not change.is_charge:
                ledger.count(change.amounts_milli.get(key, 0), change.of_child(key).units)
            if change.renewed_quotas:
                before = self.renewed.get(position, (None,) * len(change.renewed_quotas))
                moments = list(before)
                for at, hold in enumerate(change.renewed_quotas):
                    if hold.key == key and self._is_same(key, change):
                        moments[at] = ledger.renew(hold)
                self.renewed[position] = tuple(moments)
        return ledger

    def _is_same(self, key: str, change: BucketChange) -> bool:
        """Tell whether a quota still has the windows under which it was charged."""
        return has_same_windows(self._seen.limits[key].rate, change.in_force.rate_of(key))

    def moves(self) -> list[Move]:
        """Return the moves of quotas that the write changes or has bounds on."""
        return [each.move for each in self._planned.values() if _has_effect(each.move)]

    def writes(self) -> list[HoldWrite]:
        """Return the changes of held amounts, which the write makes besides the moves."""
        return [each.holds for each in self._planned.values() if not each.holds.is_empty]

    def with_children(self, through_milli: Mapping[str, int]) -> dict[str, int]:
        """Return usage through children with that of quotas, which ``through_milli`` may contain.

        What dead calls of children held is not their usage any more, however it is swept.
        """
        others = {key: each for key, each in through_milli.items() if key not in self._keys}
        planned = self._planned.items()
        return others | {
            key: of_child for key, each in planned if (of_child := each.through_children)
        }

    def applied(self) -> Mapping[str, QuotaMove]:
        """Return the planned changes of each quota."""
        return self._planned

    def has(self, key: str) -> bool:
        """Tell whether a limit is a quota, by its stored name."""
        return key in self._keys


def _has_effect(move: Move) -> bool:
    has_bound = move.low is not None or move.high is not None
    return has_bound or move.put is not None or bool(move.add or move.consumed_milli)
