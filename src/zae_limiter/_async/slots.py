"""The slots that leases of this process hold. They are renewed in time, or reported as lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zae_limiter._async.renewals import (
    RETRY_MS,
    Bucket,
    Held,
    RenewalKeeper,
    bucket_of,
    quiet_log,
)
from zae_limiter.admission.request import Charge, Grant, Renewal, RenewalFailure, RenewalOutcome
from zae_limiter.admission.slots import MARGIN_MS, SlotHold, is_lost, renewal_ms
from zae_limiter.clock import Clock


class HeldSlots(Held):
    """The slots of one grant.

    ``is_unsure`` is set when the outcome of a renewal is unknown: the renewal must not be repeated,
    and the slots are not given back, but expire.
    """

    __slots__ = ("_clock", "holds", "is_unsure", "on_lost", "was_lost")

    def __init__(self, grant: Grant, clock: Clock) -> None:
        super().__init__(grant)
        self.holds = [list(holds) for holds in grant.holds]
        self.is_unsure = False
        self.was_lost = False
        self.on_lost: Callable[[], None] | None = None
        self._clock = clock
        self.renew_at_ms = renewal_ms(self.expires_ms, clock())

    @property
    def expires_ms(self) -> int:
        """The moment at which the first of its slots expires."""
        return min(hold.expires_ms for holds in self.holds for hold in holds)

    @property
    def is_lost(self) -> bool:
        """Whether another caller may hold the slots by now."""
        return self.was_lost or not self.is_own or is_lost(self.expires_ms, self._clock())

    @property
    def wake_at_ms(self) -> int | None:
        """The moment at which slots are due or lost."""
        return self.expires_ms - MARGIN_MS if self.is_unsure else self.renew_at_ms

    def buckets(self) -> set[Bucket]:
        if self.is_unsure:
            return set()
        charges = zip(self.grant.charges, self.holds, strict=True)
        return {bucket_of(charge) for charge, holds in charges if holds}

    def add_to(self, sums: dict[SlotHold, int], bucket: Bucket) -> None:
        for charge, holds in zip(self.grant.charges, self.holds, strict=True):
            if bucket_of(charge) == bucket:
                for hold in holds:
                    sums[_one(hold)] = sums.get(_one(hold), 0) + hold.slots

    def released(self) -> tuple[tuple[SlotHold, ...], ...]:
        """Return the slots that the end of the block gives back; none if they may have expired."""
        if self.is_unsure or self.is_lost:
            return ()
        return tuple([tuple(holds) for holds in self.holds])

    def renewed(
        self,
        bucket: Bucket,
        outcome: RenewalOutcome,
        moments: Mapping[SlotHold, int | None],
        began_ms: int,
        now_ms: int,
    ) -> None:
        if outcome is RenewalFailure.UNKNOWN:
            self.is_unsure = True
        elif not isinstance(outcome, RenewalFailure):
            self._note_expiries(bucket, moments)
        self.renew_at_ms = max(renewal_ms(self.expires_ms, now_ms), now_ms + RETRY_MS)

    def end_unsure(self) -> None:
        self.is_unsure = True

    def _note_expiries(self, bucket: Bucket, moments: Mapping[SlotHold, int | None]) -> None:
        for charge, holds in zip(self.grant.charges, self.holds, strict=True):
            if bucket_of(charge) != bucket:
                continue
            for at, hold in enumerate(holds):
                moment = moments[_one(hold)]
                if moment is None:
                    self.was_lost = True
                else:
                    holds[at] = hold._replace(expires_ms=moment)


class SlotKeeper(RenewalKeeper[HeldSlots]):
    """Renews the slots that leases hold, and reports those that are lost."""

    things = "slots"

    def keep(self, grant: Grant) -> HeldSlots:
        """Keep the slots of a grant until ``end`` is called or they are lost."""
        held = HeldSlots(grant, self._clock)
        self._add(held)
        return held

    async def end(self, held: HeldSlots) -> tuple[tuple[SlotHold, ...], ...]:
        """Stop renewing slots, and return those to give back. It may be called again."""
        await self._remove(held)
        return held.released()

    def _renewal(self, charge: Charge, holds: Sequence[tuple[SlotHold, int]]) -> Renewal:
        all_holds = tuple([hold._replace(slots=slots) for hold, slots in holds])
        return Renewal(*bucket_of(charge), charge.in_force, renewed=all_holds)

    def _take_lost(self, alive: list[HeldSlots]) -> list[HeldSlots]:
        lost = [each for each in alive if each.is_lost]
        for each in lost:
            each.was_lost = True
        return lost

    def _report(self, lost: list[HeldSlots]) -> None:
        """Report lost leases in the log and by their callbacks."""
        for each in lost:
            charge = each.grant.charges[0]
            quiet_log().warning(
                "the lease of %r on %r is lost: its slots were not renewed in time, "
                "and another caller may take them",
                charge.entity_id,
                charge.resource,
            )
            if each.on_lost is not None:
                try:
                    each.on_lost()
                except Exception:  # noqa: BLE001 - the other leases must still be renewed
                    quiet_log().exception(
                        "the callback for the lost lease of %r on %r has failed",
                        charge.entity_id,
                        charge.resource,
                    )


def _one(hold: SlotHold) -> SlotHold:
    """Return the same hold with one slot, as a key for all holds with the same expiry."""
    return hold._replace(slots=1)
