"""The changes that callers want of a bucket, and their sums in one write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from zae_limiter.admission.fit import fits
from zae_limiter.admission.image import BucketImage, is_paused, is_same_kind
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Wanted
from zae_limiter.admission.quotas import OfChild, QuotaHold, QuotaSettlement
from zae_limiter.admission.request import (
    NO_NAMES,
    Charge,
    ChargeRequest,
    Settlement,
    part_of_child,
)
from zae_limiter.admission.reservation import advance_milli
from zae_limiter.admission.slots import SlotHold


@dataclass(slots=True)
class BucketChange:
    """The change that one caller wants of one bucket: a charge, or debts and credits.

    Amounts are by stored name; credits are negative. A charge names every limit in force, with 0
    where it takes nothing. ``admitted`` is added to the bucket's count of admitted acquires, and
    ``elsewhere`` to that of them which are calls of another bucket.
    ``refreshed`` says that the limits were read again after the bucket was found to have newer
    ones. ``through_child`` and ``through_milli`` are those of the charge. ``until_ms`` makes a
    charge a reservation. ``is_debt`` is a charge in shadow mode: it is taken however little the
    bucket holds. A change that ``forfeits`` only counts as usage: a settlement, or a bypassed
    charge. ``released`` and ``renewed`` are slots that the caller holds, ``quotas`` and
    ``renewed_quotas`` amounts of quotas. ``is_count`` is a change that only writes the counts of
    this client; it creates the bucket if there is none.
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
    quotas: tuple[QuotaSettlement, ...] = ()
    renewed_quotas: tuple[QuotaHold, ...] = ()
    through_milli: Mapping[str, int] | None = None
    is_debt: bool = False
    elsewhere: int = 0

    def of_child(self, key: str) -> OfChild:
        """Return the part of the change of one limit that a child makes as well."""
        return part_of_child(key, self.amounts_milli, self.through_child, self.through_milli)

    @property
    def must_fit(self) -> bool:
        """Whether the change is a charge that is rejected if the bucket does not hold it."""
        return self.is_charge and not self.is_debt and not self.forfeits

    @property
    def held_slots(self) -> tuple[SlotHold, ...]:
        """The slots that the change gives back or renews."""
        return self.released or self.renewed

    @property
    def held_quotas(self) -> bool:
        """Whether the change settles or renews amounts of quotas."""
        return bool(self.quotas or self.renewed_quotas)

    @property
    def holds_anything(self) -> bool:
        """Whether the change concerns slots or amounts that the caller holds."""
        return bool(self.released or self.renewed or self.quotas or self.renewed_quotas)

    @classmethod
    def of_charge(cls, charge: Charge, request: ChargeRequest) -> BucketChange:
        """Return the change of one bucket that a request asks for."""
        admitted = 1 if request.is_acquire else 0
        change = cls(
            charge.in_force,
            charge.amounts_milli,
            True,
            admitted,
            request.refreshed,
            charge.through_child,
            request.until_ms,
        )
        if charge.switch is not None:
            change.is_debt, change.forfeits = charge.is_shadow, charge.is_bypass
            change.until_ms = None  # it is admitted at once
        if charge.through_milli is not None:
            change.through_milli = charge.through_milli
        if charge.counts_elsewhere:
            change.elsewhere = admitted
        return change

    @classmethod
    def of_settlement(cls, settlement: Settlement) -> BucketChange:
        return cls(
            in_force=settlement.in_force,
            amounts_milli=settlement.amounts_milli,
            is_charge=False,
            admitted=settlement.admitted,
            through_child=settlement.through_child,
            forfeits=settlement.forfeits,
            released=settlement.released,
            quotas=settlement.quotas,
            elsewhere=settlement.elsewhere,
        )

    def fits(self, image: BucketImage, now_ms: int) -> bool:
        """Tell whether the charge fits into a bucket if no other change is written with it."""
        if self.is_debt or self.forfeits:  # then only a pause stops it
            return not is_paused(image, now_ms)
        return fits(image, self.amounts_milli, now_ms, self.until_ms)

    def without_absent_limits(self, image: BucketImage) -> BucketChange:
        """Drop credits for limits that the bucket does not have: an absent limit is full.

        Settlements of limits that are of another kind by now are dropped as well.
        """
        amounts = self.amounts_milli
        if self.is_charge or not self._concerns_absent_limits(image):
            return self
        stored = {key: each for key, each in amounts.items() if not self.is_absent(image, key)}
        quotas = tuple([each for each in self.quotas if not self.is_absent(image, each.hold.key)])
        return replace(self, amounts_milli=stored, quotas=quotas)

    def to_absent_limits(self, image: BucketImage) -> BucketChange | None:
        """Return the part that ``without_absent_limits`` drops; None if it drops nothing."""
        amounts = self.amounts_milli
        if self.is_charge or not self._concerns_absent_limits(image):
            return None
        absent = {key: each for key, each in amounts.items() if self.is_absent(image, key)}
        quotas = tuple([each for each in self.quotas if self.is_absent(image, each.hold.key)])
        return replace(self, amounts_milli=absent, quotas=quotas)

    def is_absent(self, image: BucketImage, key: str) -> bool:
        """Tell whether a bucket lacks a limit, or has one of another kind under its name."""
        state = image.limits.get(key)
        return state is None or not is_same_kind(state.rate, self.in_force.rate_of(key))

    def _concerns_absent_limits(self, image: BucketImage) -> bool:
        for key in self.amounts_milli:  # written out: every settlement comes here
            if self.is_absent(image, key):
                return True
        return bool(self.quotas) and any(
            self.is_absent(image, each.hold.key) for each in self.quotas
        )

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


def select(changes: Sequence[BucketChange], image: BucketImage, now_ms: int) -> list[int]:
    """Return the positions of the changes that one write carries.

    Those are all credits and debts, and the charges that fit behind them in the order of arrival.
    Charges in shadow mode are debts: behind other charges, they would take a balance on which
    those were admitted. During a pause no charge is carried.
    """
    if _fit_together(changes, image, now_ms):
        return list(range(len(changes)))
    paused = is_paused(image, now_ms)
    unchecked = [
        change for change in changes if not change.must_fit and not (change.is_charge and paused)
    ]
    settled = total(change.without_absent_limits(image) for change in unchecked)
    returned = {key: wanted.returned_milli for key, wanted in settled.items()}
    taken = {key: wanted.owed_milli for key, wanted in settled.items()}
    positions = []
    for position, change in enumerate(changes):
        if change.is_charge and paused:
            continue
        if change.must_fit:
            amounts = change.amounts_milli
            if not fits(
                image,
                amounts,
                now_ms,
                change.until_ms,
                returned_milli=returned,
                taken_milli=taken,
            ):
                continue
            for key, amount in amounts.items():
                taken[key] = taken.get(key, 0) + amount
        positions.append(position)
    return positions


def _fit_together(changes: Sequence[BucketChange], image: BucketImage, now_ms: int) -> bool:
    """Tell whether a bucket holds all changes at once, and all are plain charges.

    Then each of them fits behind those before it. This is the usual group, and one look at the
    bucket decides it.
    """
    sums: dict[str, int] = {}
    for change in changes:
        if not change.must_fit or change.until_ms is not None or change.in_force.has_terms:
            return False
        for key, amount in change.amounts_milli.items():
            sums[key] = sums.get(key, 0) + amount
    return fits(image, sums, now_ms)


def total(changes: Iterable[BucketChange]) -> dict[str, Wanted]:
    """Add up the amounts of several changes by limit."""
    charged: dict[str, int] = {}
    owed: dict[str, int] = {}
    returned: dict[str, int] = {}
    uncounted: dict[str, int] = {}
    for change in changes:
        soft_keys, must_fit = change.in_force.soft_keys, change.must_fit
        for key, amount in change.amounts_milli.items():
            if must_fit and key not in soft_keys:
                charged[key] = charged.get(key, 0) + amount
            elif change.forfeits:
                uncounted[key] = uncounted.get(key, 0) - amount
            elif amount > 0 or change.is_debt:
                owed[key] = owed.get(key, 0) + amount
            else:
                returned[key] = returned.get(key, 0) - amount
    return {
        key: Wanted(
            charged_milli=charged.get(key, 0),
            owed_milli=owed.get(key, 0),
            returned_milli=returned.get(key, 0),
            asked=key in charged,
            uncounted_milli=uncounted.get(key, 0),
        )
        for key in charged | owed | returned | uncounted
    }


def total_at(changes: Sequence[BucketChange], image: BucketImage, now_ms: int) -> dict[str, Wanted]:
    """Add up the amounts of several changes, and the level that reservations among them require.

    Each charge must fit, together with all charges before it, by the moment up to which it waits.
    """
    wanted = total(changes)
    if not any(change.until_ms is not None for change in changes):
        return wanted
    charged: dict[str, int] = {}
    needed: dict[str, int] = {}
    for change in changes:
        if not change.must_fit:
            continue
        for key, amount in change.amounts_milli.items():
            if key in change.in_force.soft_keys:
                continue
            charged[key] = charged.get(key, 0) + amount
            rate = image.limits[key].rate
            level = charged[key] - advance_milli(rate, amount, now_ms, change.until_ms)
            needed[key] = max(level, needed.get(key, level))
    return {
        key: replace(each, needed_milli=needed[key]) if key in needed else each
        for key, each in wanted.items()
    }


def through_children(
    changes: Iterable[BucketChange], *, without: Collection[str] = ()
) -> dict[str, int]:
    """Add up the amounts that changes take on behalf of children, net of credits, by limit.

    Those of quotas depend on what is held, see ``PlannedQuotas.with_children``.
    """
    sums: dict[str, int] = {}
    for change in changes:
        if change.through_child or change.through_milli is not None:
            for key in change.amounts_milli:
                if key not in without and (units := change.of_child(key).units):
                    sums[key] = sums.get(key, 0) + units
    return sums
