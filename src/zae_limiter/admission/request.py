"""Requests to a bucket store, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from zae_limiter.admission.in_force import InForce, plain_name, stored_units
from zae_limiter.admission.quotas import NO_CHILD, OfChild, QuotaHold, QuotaSettlement
from zae_limiter.admission.slots import SlotHold
from zae_limiter.models.switches import SwitchMode
from zae_limiter.models.timestamps import MILLI

if TYPE_CHECKING:
    from zae_limiter.admission.image import BucketImage
    from zae_limiter.admission.reservation import Reservation
    from zae_limiter.admission.thresholds import OnThreshold
    from zae_limiter.clock import Deadline
    from zae_limiter.models.status import LimitStatus
    from zae_limiter.models.switches import Switch
    from zae_limiter.refusal import LimitedBy

NO_NAMES: frozenset[str] = frozenset()
NO_AMOUNTS: Mapping[str, int] = {}


class BucketChange:
    """What happens to one bucket: a charge, a settlement, a renewal, or only counts.

    ``decide`` asks all of them the same questions. Those of a kind of change answer with what it
    has; the answers here are those of a change that has nothing of the sort.
    """

    __slots__ = ()

    in_force: InForce
    amounts_milli: Mapping[str, int]  # by stored name; credits are negative
    is_charge: bool = False
    refreshed: bool = False  # the limits were read again, since the bucket had newer ones
    admitted: int = 0  # added to the bucket's count of admitted acquires
    until_ms: int | None = None  # makes a charge a reservation
    released: tuple[SlotHold, ...] = ()
    renewed: tuple[SlotHold, ...] = ()
    quotas: tuple[QuotaSettlement, ...] = ()
    renewed_quotas: tuple[QuotaHold, ...] = ()
    through_child: frozenset[str] = NO_NAMES
    through_milli: Mapping[str, int] | None = None

    @property
    def must_fit(self) -> bool:
        """Whether the change is a charge that is rejected if the bucket does not hold it."""
        return False

    @property
    def is_debt(self) -> bool:
        """Whether the change is a charge that is taken however little the bucket holds."""
        return False

    @property
    def forfeits(self) -> bool:
        """Whether the change only counts as usage."""
        return False

    @property
    def is_count(self) -> bool:
        """Whether the change only brings counts of acquires; it creates an absent bucket."""
        return False

    @property
    def elsewhere(self) -> int:
        """The part of ``admitted`` that are calls of another bucket."""
        return 0

    @property
    def held_slots(self) -> tuple[SlotHold, ...]:
        """The slots that the change gives back or renews."""
        return self.released or self.renewed

    @property
    def held_quotas(self) -> bool:
        """Whether the change settles or renews amounts of quotas."""
        return bool(self.quotas or self.renewed_quotas)

    def of_child(self, key: str) -> OfChild:
        """Return the part of the change of one limit that a child of the entity makes as well."""
        through = self.through_milli
        if not self.through_child and through is None:
            return NO_CHILD
        is_counted = plain_name(key) in self.through_child
        if through is not None:
            return OfChild(through.get(key, 0), is_counted)
        return OfChild(self.amounts_milli.get(key, 0), True) if is_counted else NO_CHILD


@dataclass(slots=True)
class Charge(BucketChange):
    """Amounts for one bucket by stored name, in the order of its limits in force.

    Every limit in force is named, with 0 where nothing is taken from it. In the parent's part of a
    cascade ``through_child`` are the names of the limits that the child has, too: their usage is
    counted apart, so that totals over entities count each token once.
    """

    entity_id: str
    resource: str
    in_force: InForce
    amounts_milli: Mapping[str, int]
    through_child: frozenset[str] = NO_NAMES
    # The amounts that come through children, if they are only a part of the amounts of these limits
    through_milli: Mapping[str, int] | None = None
    switch: Switch | None = None  # of the bucket at the stamp of the call; None if none counts
    # The acquire is a call of another bucket: that of the child, or of the first resource.
    counts_elsewhere: bool = False
    # Those of the request, see ``of_request``:
    admitted: int = 1
    refreshed: bool = False
    until_ms: int | None = None

    is_charge: ClassVar[bool] = True  # type: ignore[misc]

    def of_request(self, request: ChargeRequest) -> Charge:
        """Take over what a request says of all its charges; return the charge itself."""
        self.admitted = 1 if request.is_acquire else 0
        self.refreshed = request.refreshed
        # A charge under a switch is admitted at once, so it reserves nothing.
        self.until_ms = request.until_ms if self.switch is None else None
        return self

    @property
    def must_fit(self) -> bool:
        return self.switch is None

    @property
    def is_debt(self) -> bool:
        """Whether the charge is one in shadow mode."""
        return self.switch is not None and self.switch.mode is SwitchMode.SHADOW

    @property
    def forfeits(self) -> bool:
        """Whether the charge is bypassed."""
        return self.switch is not None and self.switch.mode is SwitchMode.BYPASS

    @property
    def elsewhere(self) -> int:
        return self.admitted if self.counts_elsewhere else 0


@dataclass(slots=True)
class ChargeRequest:
    """Charge every bucket or none, decided at one stamp.

    ``now_ms`` is the stamp of the call. A store that has to wait for its turn reads ``clock`` again
    when it builds the write; it keeps that stamp for its retries.
    ``refreshed`` says that the limits were read again after a bucket had seen newer ones;
    ``is_acquire`` is False for more tokens within a lease, which is not another acquire.
    ``speculative`` lets a store write without reading first, where it can. ``deadline`` is by when
    the acquire must be decided; its configuration has been read within it. ``until_ms`` makes the
    charge of one bucket a reservation: tokens that will have accrued by then, but not later than
    ``HORIZON_MS`` after the stamp, count as if they were there. ``in_order`` asks a store that
    writes to each bucket by itself to do so one after the other, in the order of the charges.
    ``on_threshold`` is told of the thresholds of quotas that the store marks because of this
    charge; without it none are marked.
    """

    charges: tuple[Charge, ...]
    clock: Callable[[], int]
    now_ms: int
    deadline: Deadline | None = None
    is_acquire: bool = True
    speculative: bool = True
    refreshed: bool = False
    until_ms: int | None = None
    in_order: bool = False
    on_threshold: OnThreshold | None = None


@dataclass(slots=True)
class Settlement(BucketChange):
    """Debts (positive) and credits (negative) for one bucket, by stored name.

    ``in_force`` are the limits it was charged under: a debt creates the bucket with them if it has
    been deleted meanwhile. A credit to a deleted bucket changes nothing, since that bucket is full,
    but it still counts as usage. ``through_child`` is that of the charge. ``admitted`` is added to
    the count of admitted acquires, and ``elsewhere`` to that of them which are calls of another
    bucket. ``forfeits`` says that the amounts only correct what is counted as consumed: a
    reservation has lapsed, or the charge was bypassed. ``released`` are slots that the charge
    holds; those that have expired are left out. ``quotas`` are the debts and credits of quotas,
    with the amounts that the charge holds of them. ``shard`` is the number of the shard that a
    reservation was made in: its tokens have not accrued yet, so they go back there.
    """

    entity_id: str
    resource: str
    in_force: InForce
    amounts_milli: Mapping[str, int]
    through_child: frozenset[str] = NO_NAMES
    admitted: int = 0
    forfeits: bool = False
    released: tuple[SlotHold, ...] = ()
    quotas: tuple[QuotaSettlement, ...] = ()
    shard: int | None = None
    elsewhere: int = 0
    through_milli: Mapping[str, int] | None = None

    def apart(self) -> Settlement:
        """Return what still makes the settlement when the call has gone on as if it were made."""
        return replace(self, quotas=tuple([each.apart() for each in self.quotas]))

    def is_of_same_bucket(self, other: Settlement) -> bool:
        """Tell whether both settle the same bucket under the same limits."""
        return (self.entity_id, self.resource, self.in_force) == (
            other.entity_id,
            other.resource,
            other.in_force,
        )


class Fate(Enum):
    """What is known of a write without an answer."""

    MADE = "made"
    NOT_MADE = "not made"  # and it will not be made any more
    NOT_KNOWN_YET = "not known yet"
    NEVER_KNOWN = "never known"


@dataclass(slots=True)
class Renewal(BucketChange):
    """Slots, or held amounts of quotas, of one bucket whose leases go on."""

    entity_id: str
    resource: str
    in_force: InForce
    renewed: tuple[SlotHold, ...] = ()
    renewed_quotas: tuple[QuotaHold, ...] = ()

    amounts_milli: ClassVar[Mapping[str, int]] = NO_AMOUNTS  # type: ignore[misc]


@dataclass(slots=True)
class Count(BucketChange):
    """Counts of acquires of one bucket, which the write that carries this brings along."""

    in_force: InForce

    amounts_milli: ClassVar[Mapping[str, int]] = NO_AMOUNTS  # type: ignore[misc]

    @property
    def is_count(self) -> bool:
        return True


class RenewalFailure(Enum):
    """Why slots were not renewed: the write was not made, or its outcome is unknown.

    Then it must not be repeated: the slots may have been moved already.
    """

    NOT_MADE = "not made"
    UNKNOWN = "unknown"


# When each hold of a renewal expires from now on; None for one that had expired already.
RenewalOutcome = tuple[int | None, ...] | RenewalFailure


@dataclass(slots=True)
class Grant:
    """All buckets were charged, with just these limits and amounts.

    ``images`` are the buckets after that, as the store answered. Where putting one together takes
    time (a bucket in several shards), it is a function that does so. ``reservation`` says when that
    of a caller that waits is due. ``holds`` are the slots that were taken, of each charge; empty if
    no limit has slots. ``quota_holds`` are the amounts of quotas that each charge holds.
    ``would_reject`` says that a bucket in shadow mode would have rejected the charge.
    """

    charges: tuple[Charge, ...]
    images: Sequence[BucketImage | Callable[[], BucketImage]] = ()
    reservation: Reservation | None = None
    holds: tuple[tuple[SlotHold, ...], ...] = ()
    quota_holds: tuple[tuple[QuotaHold, ...], ...] = ()
    would_reject: bool = False

    def names(self) -> frozenset[str]:
        """Return the names of all limits of the buckets whose tokens can be settled."""
        first = self.charges[0].in_force.token_names
        return first if len(self.charges) == 1 else first | self.charges[1].in_force.token_names

    def budget_names(self) -> frozenset[str]:
        """Return the names of the limits whose amounts are money."""
        first = self.charges[0].in_force.budget_names
        return first if len(self.charges) == 1 else first | self.charges[1].in_force.budget_names

    def tokens(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Return the amounts that can be settled, as the account of a lease counts them.

        Those are whole tokens, or billionths of money. Slots are not settled.
        """
        names, money = self.names(), self.budget_names()
        return {
            name: stored_units(amount, True) if name in money else amount
            for name, amount in amounts.items()
            if name in names
        }

    def undo(self, admitted: int = 0) -> tuple[Settlement, ...]:
        """Return the credits that undo the grant in every bucket, and all that it holds.

        ``admitted`` acquires are not counted as admitted any more.
        """
        found = []
        for position, charge in enumerate(self.charges):
            slot_keys, quota_keys = charge.in_force.slot_keys, charge.in_force.quota_keys
            if charge.forfeits:
                quota_keys = ()  # nothing of them is held
            credits_milli = {
                key: -amount
                for key, amount in charge.amounts_milli.items()
                if amount and key not in slot_keys and key not in quota_keys
            }
            through = charge.through_milli
            slots = self.holds[position] if self.holds else ()
            held = self.quota_holds[position] if self.quota_holds else ()
            quotas = [
                QuotaSettlement(each, -each.units, undoes=True) for each in held if each.units
            ]
            if credits_milli or slots or quotas or admitted:
                found.append(
                    Settlement(
                        entity_id=charge.entity_id,
                        resource=charge.resource,
                        in_force=charge.in_force,
                        amounts_milli=credits_milli,
                        through_child=charge.through_child,
                        admitted=-admitted,
                        forfeits=charge.forfeits,
                        released=slots,
                        quotas=tuple(quotas),
                        shard=None if self.reservation is None else self.reservation.shard.number,
                        elsewhere=-admitted if charge.counts_elsewhere else 0,
                        through_milli=None
                        if through is None
                        else {key: -each for key, each in through.items()},
                    )
                )
        return tuple(found)

    def settlements(
        self,
        amounts: Mapping[str, int],
        released: tuple[tuple[SlotHold, ...], ...] = (),
        holds: tuple[tuple[QuotaHold, ...], ...] = (),
        ended: frozenset[str] | None = None,
    ) -> tuple[Settlement, ...]:
        """Return debts (positive) and credits (negative) for each bucket that has the limit.

        ``released`` are the slots to be given back, of each charge, and ``holds`` what it holds of
        quotas. The settlement ends the holds of the limits ``ended``, or of all limits; the others
        go on with the changed amount.
        """
        found = []
        for position, charge in enumerate(self.charges):
            in_force = charge.in_force
            money, quota_keys = in_force.budget_names, in_force.quota_keys
            owed = {
                key: amounts[name] * (1 if name in money else MILLI)
                for name, key in zip(in_force.names, in_force.keys, strict=True)
                if amounts.get(name) and name in in_force.token_names
            }
            if charge.forfeits:
                if owed:
                    found.append(_of_bypass(charge, owed))
                continue
            quotas: tuple[QuotaSettlement, ...] = ()
            if quota_keys:
                going_on = () if ended is None else _keys_without(in_force, ended)
                quotas = tuple(
                    [
                        QuotaSettlement.of(hold, owed.get(hold.key, 0), keeps=hold.key in going_on)
                        for hold in (holds[position] if holds else ())
                        if owed.get(hold.key)
                        or hold.late
                        or (hold.units and hold.key not in going_on)
                    ]
                )
                owed = {key: each for key, each in owed.items() if key not in quota_keys}
            slots = released[position] if released else ()
            if owed or slots or quotas:
                found.append(
                    Settlement(
                        entity_id=charge.entity_id,
                        resource=charge.resource,
                        in_force=in_force,
                        amounts_milli=owed,
                        through_child=charge.through_child,
                        released=slots,
                        quotas=quotas,
                    )
                )
        return tuple(found)


def _keys_without(in_force: InForce, names: frozenset[str]) -> frozenset[str]:
    """Return the stored names of all limits but some."""
    pairs = zip(in_force.names, in_force.keys, strict=True)
    return frozenset([key for name, key in pairs if name not in names])


def _of_bypass(charge: Charge, owed: Mapping[str, int]) -> Settlement:
    """Return the settlement of a bypassed charge, which changes usage only."""
    return Settlement(
        entity_id=charge.entity_id,
        resource=charge.resource,
        in_force=charge.in_force,
        amounts_milli=owed,
        through_child=charge.through_child,
        forfeits=True,
    )


def with_released(
    settlements: tuple[Settlement, ...], releases: tuple[Settlement, ...]
) -> tuple[Settlement, ...]:
    """Add slots to settlements of the same buckets: then one write does both."""
    added = list(settlements)
    for release in releases:
        for at, each in enumerate(added):
            if each.is_of_same_bucket(release) and not each.released:
                added[at] = replace(each, released=release.released)
                break
        else:
            added.append(release)
    return tuple(added)


class Rejection(NamedTuple):
    """Nothing was charged. Every limit in force of every bucket is listed."""

    statuses: tuple[LimitStatus, ...]


class StaleLimits(NamedTuple):
    """Nothing was charged: a bucket has seen newer configuration. Read it, then charge again.

    ``version`` is the configuration version that the bucket has seen.
    """

    version: int


ChargeOutcome = Grant | Rejection | StaleLimits


class AcquireEnd(NamedTuple):
    """How an acquire ended that was rejected or shadowed, or has waited.

    ``buckets`` are those that it asked, each by its entity and the limits in force, the bucket of
    the entity itself first. ``statuses`` are those of the rejection; empty if it was not rejected.
    ``is_shadowed`` says that shadow mode let the acquire through, although it did not fit.
    ``is_further`` says that the resource is a further one of the acquire, and ``refused_by`` what
    refused the acquire; if it is None, the statuses tell.
    """

    resource: str
    buckets: tuple[tuple[str, InForce], ...]
    statuses: Sequence[LimitStatus]
    has_waited: bool
    clock: Callable[[], int]
    is_shadowed: bool = False
    is_further: bool = False
    refused_by: LimitedBy | None = None
