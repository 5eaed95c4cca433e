"""The amounts of quotas that leases of this process hold. They are renewed until the block ends."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from zae_limiter._async.renewals import RETRY_MS, Bucket, Held, RenewalKeeper, bucket_of
from zae_limiter.admission.quotas import NEVER_EXPIRES, QuotaHold, expiry_s, quota_terms
from zae_limiter.admission.request import (
    Charge,
    Grant,
    Renewal,
    RenewalFailure,
    RenewalOutcome,
    Settlement,
)
from zae_limiter.admission.windows import end_ms

_Holds = tuple[tuple[QuotaHold, ...], ...]


class HeldQuotas(Held):
    """The amounts of quotas that one grant holds. Those that never expire need no renewal."""

    __slots__ = ("holds",)

    def __init__(self, grant: Grant, now_ms: int) -> None:
        super().__init__(grant)
        self.holds = [list(holds) for holds in grant.quota_holds]
        self.renew_at_ms = self._next_renewal_ms(now_ms)

    @property
    def wake_at_ms(self) -> int | None:
        """The moment of the next renewal; None if nothing expires before its window ends."""
        return self.renew_at_ms if self.buckets() else None

    def buckets(self) -> set[Bucket]:
        return {bucket_of(charge) for charge, _ in self._renewable()}

    def add_to(self, sums: dict[QuotaHold, int], bucket: Bucket) -> None:
        for charge, hold in self._renewable():
            if bucket_of(charge) == bucket:
                sums[_one(hold)] = sums.get(_one(hold), 0) + hold.units

    def current(self) -> _Holds:
        """Return the holds of each charge."""
        return tuple([tuple(holds) for holds in self.holds])

    def change(self, settlements: Iterable[Settlement]) -> None:
        """Note the amounts that are held after settlements in the middle of the block."""
        after = {
            id(each.hold): each.held_after
            for settlement in settlements
            for each in settlement.quotas
        }
        self.holds = [
            [
                hold._replace(units=after[id(hold)], late=0) if id(hold) in after else hold
                for hold in holds
            ]
            for holds in self.holds
        ]

    def join(self, before: _Holds, settlements: Iterable[Settlement]) -> None:
        """Note the windows and lives in which written settlements have charged something first.

        ``before`` are the holds that the settlements have changed, at the same places.
        """
        joined = {
            id(each.hold): each.joined
            for settlement in settlements
            for each in settlement.quotas
            if each.joined is not None
        }
        if joined:
            self.holds = [
                [
                    joined[id(old)].joined_by(hold) if id(old) in joined else hold
                    for hold, old in zip(holds, olds, strict=True)
                ]
                for holds, olds in zip(self.holds, before, strict=True)
            ]

    def restore(self, before: _Holds) -> None:
        """Note that a change was certainly not written."""
        self.holds = [list(holds) for holds in before]

    def postpone(self, before: _Holds, refused: Iterable[Settlement]) -> None:
        """Hold on to what refused settlements would have changed; the next ones bring the change.

        Other settlements of the same write were made, so that the write is not undone.
        """
        late = {id(each.hold): each.change for settlement in refused for each in settlement.quotas}
        self.holds = [
            [
                old._replace(late=late[id(old)]) if id(old) in late else hold
                for hold, old in zip(holds, olds, strict=True)
            ]
            for holds, olds in zip(self.holds, before, strict=True)
        ]

    def renew_only(self, kept: Container[tuple[int, int]]) -> None:
        """Renew the holds at these places (charge and position) only; others have been ended."""
        self.holds = [
            [
                hold if (charge, position) in kept else hold._replace(units=0)
                for position, hold in enumerate(holds)
            ]
            for charge, holds in enumerate(self.holds)
        ]

    def renewed(
        self,
        bucket: Bucket,
        outcome: RenewalOutcome,
        moments: Mapping[QuotaHold, int | None],
        began_ms: int,
        now_ms: int,
    ) -> None:
        """Note the outcome of a renewal of one of its buckets.

        A renewal with an unknown outcome counts as made: if it was not, the settlement finds out.
        Holds that need no renewal stay as they are.
        """
        if outcome is RenewalFailure.NOT_MADE:
            self.renew_at_ms = now_ms + RETRY_MS
            return
        for charge, holds in zip(self.grant.charges, self.holds, strict=True):
            for at, hold in enumerate(holds):
                if bucket_of(charge) != bucket or not _is_renewable(charge, hold):
                    continue
                expires_s = moments.get(_one(hold))
                if outcome is RenewalFailure.UNKNOWN:
                    terms, _ = quota_terms(charge.in_force.rate_of(hold.key))
                    expires_s = expiry_s(terms.hold_ttl_s, began_ms)
                if expires_s is not None:
                    holds[at] = hold._replace(expires_s=expires_s)
        self.renew_at_ms = self._next_renewal_ms(now_ms)

    def _renewable(self) -> Iterator[tuple[Charge, QuotaHold]]:
        """Return the holds that expire before their window ends, each with its charge."""
        for charge, holds in zip(self.grant.charges, self.holds, strict=True):
            for hold in holds:
                if _is_renewable(charge, hold):
                    yield charge, hold

    def _next_renewal_ms(self, now_ms: int) -> int | None:
        """Return the moment of the next renewal: half of the shortest TTL from now."""
        moments = []
        for charge, hold in self._renewable():
            terms, window = quota_terms(charge.in_force.rate_of(hold.key))
            assert terms.hold_ttl_s is not None, "it expires"
            if now_ms < min(hold.expires_s * 1000, end_ms(window, hold.window)):
                moments.append(now_ms + terms.hold_ttl_s // 2 * 1000)
        return min(moments, default=None)


class HoldKeeper(RenewalKeeper[HeldQuotas]):
    """Renews the amounts of quotas that leases hold."""

    def keep(self, grant: Grant) -> HeldQuotas:
        """Keep the holds of a grant until ``end`` is called."""
        held = HeldQuotas(grant, self._clock())
        self._add(held)
        return held

    def go_on(self, held: HeldQuotas) -> None:
        """Renew holds again after an ``end``."""
        self._add(held)

    async def end(self, held: HeldQuotas) -> _Holds:
        """Stop renewing holds, and return them. It may be called again."""
        await self._remove(held)
        return held.current()

    def _renewal(self, charge: Charge, holds: Sequence[tuple[QuotaHold, int]]) -> Renewal:
        all_holds = tuple([hold._replace(units=units) for hold, units in holds])
        return Renewal(*bucket_of(charge), charge.in_force, renewed_quotas=all_holds)


def _one(hold: QuotaHold) -> QuotaHold:
    """Return the same hold with one unit, as a key for all holds with the same expiry."""
    return hold._replace(units=1, late=0)


def _is_renewable(charge: Charge, hold: QuotaHold) -> bool:
    """Tell whether a hold expires before its window ends."""
    if not hold.units or hold.expires_s == NEVER_EXPIRES:
        return False
    _, window = quota_terms(charge.in_force.rate_of(hold.key))
    return hold.expires_s * 1000 < end_ms(window, hold.window)
