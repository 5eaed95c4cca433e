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

Holds = tuple[tuple[QuotaHold, ...], ...]


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

    def current(self) -> Holds:
        """Return the holds of each charge."""
        return tuple([tuple(holds) for holds in self.holds])

    def settled(
        self,
        before: Holds,
        settlements: Iterable[Settlement],
        refused: Iterable[Settlement] = (),
    ) -> None:
        """Note what settlements in the middle of the block have changed of the holds ``before``.

        The next settlement of a hold brings what was ``refused`` while others were made.
        """
        parts = {id(part.hold): part for each in settlements for part in each.quotas}
        late = {id(part.hold) for each in refused for part in each.quotas}

        def after(hold: QuotaHold) -> QuotaHold:
            part = parts.get(id(hold))
            if part is None:
                return hold
            if id(hold) in late:
                return hold._replace(late=part.change)
            changed = hold._replace(units=part.held_after, late=0)
            return changed if part.joined is None else part.joined.joined_by(changed)

        self.holds = [[after(hold) for hold in holds] for holds in before]

    def renew_only(self, named: Holds, ids: Container[int]) -> bool:
        """Renew only holds whose earlier name has one of these ids; tell whether there are any.

        Others have been ended. ``named`` are the earlier names, at the same places.
        """
        self.holds = [
            [
                hold if id(name) in ids else hold._replace(units=0)
                for hold, name in zip(holds, names, strict=True)
            ]
            for holds, names in zip(self.holds, named, strict=True)
        ]
        return any(id(name) in ids for names in named for name in names)

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

    async def end(self, held: HeldQuotas) -> Holds:
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
