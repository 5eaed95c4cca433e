"""The quotas of a group of changes in one write: settled, renewed, swept and taken together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move
from zae_limiter.admission.quotas import HoldWrite, QuotaHold, QuotaLedger, QuotaMove
from zae_limiter.dynamodb.buckets.changes import BucketChange

RenewedHolds = tuple[int | None, ...]


class PlannedQuotas:
    """Plans the quotas on the bucket as it was seen; the conditions of the write check that.

    ``image`` is the bucket after the settlements, before charges take anything. ``is_doubtful``
    says that a hold was not seen there: it has expired, or the image is outdated. ``lost`` are the
    changes of usage to quotas that the bucket does not have any more, by stored name.
    """

    def __init__(self, image: BucketImage, changes: Sequence[BucketChange], now_ms: int) -> None:
        self._seen = image
        self._changes = changes
        self._now_ms = now_ms
        self._keys = [key for key, state in image.limits.items() if state.quota is not None]
        self.is_doubtful = self.gives = False
        self.lost: dict[str, int] = {}
        self.holds: dict[int, tuple[QuotaHold, ...]] = {}
        self.renewed: dict[int, RenewedHolds] = {}
        self._planned: dict[str, QuotaMove] = {}
        limits = dict(image.limits)
        for key in self._keys:
            ledger = self._settled(key, charges=False)
            self.is_doubtful = self.is_doubtful or ledger.is_doubtful
            limits[key] = ledger.finish(asked=False).applied(limits[key])
        self.image = image._replace(limits=limits)
        for change in changes:
            self.gives = self.gives or bool(change.held_quotas)
            for each in change.quotas:
                key = each.hold.key
                if key not in self._keys:
                    self.lost[key] = self.lost.get(key, 0) + each.change

    def take(self, positions: Sequence[int]) -> None:
        """Plan the write with the charges at these positions, behind all settlements."""
        changes = self._changes
        charging = [position for position in positions if changes[position].is_charge]
        holds: dict[int, list[QuotaHold]] = {position: [] for position in charging}
        for key in self._keys:
            charges = any(changes[at].amounts_milli.get(key) for at in charging)
            ledger = self._settled(key, charges=charges)
            for position in charging:
                if key in changes[position].in_force.quota_keys:
                    amount = changes[position].amounts_milli[key]
                    holds[position].append(ledger.take(amount))
            asked = any(key in changes[at].amounts_milli for at in charging)
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
        now, then = self._seen.limits[key].rate.terms, change.in_force.rate_of(key).terms
        return now is not None and then is not None and now.window == then.window

    def moves(self) -> list[Move]:
        """Return the moves of quotas that the write changes or has bounds on."""
        return [each.move for each in self._planned.values() if _has_effect(each.move)]

    def writes(self) -> list[HoldWrite]:
        """Return the changes of held amounts, which the write makes besides the moves."""
        return [each.holds for each in self._planned.values() if not each.holds.is_empty]

    def applied(self) -> Mapping[str, QuotaMove]:
        """Return the planned changes of each quota."""
        return self._planned

    def has(self, key: str) -> bool:
        """Tell whether a limit is a quota, by its stored name."""
        return key in self._keys


def _has_effect(move: Move) -> bool:
    has_bound = move.low is not None or move.high is not None
    return has_bound or move.put is not None or bool(move.add or move.consumed_milli)
