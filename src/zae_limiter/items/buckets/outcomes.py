"""The outcomes of changes to a bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from zae_limiter.admission.fit import has_no_debt
from zae_limiter.admission.image import BucketImage, level_milli
from zae_limiter.admission.moves import added_move, after, surplus_milli
from zae_limiter.admission.quotas import QuotaHold, in_life
from zae_limiter.admission.rebase import has_limits
from zae_limiter.admission.request import StaleLimits
from zae_limiter.admission.reservation import Reservation, reserved
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.buckets.changes import BucketChange, total
from zae_limiter.items.buckets.planned_quotas import PlannedQuotas
from zae_limiter.items.buckets.planned_slots import Moments
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.store_errors import NoAnswer


@dataclass(slots=True)
class Applied:
    """The change is committed; ``image`` is the bucket or shard after the write.

    ``is_whole`` says that the image is the whole bucket. Two things are left to other shards:
    ``spilled_milli`` is the part of a credit that the shard has no room for, ``is_short`` says that
    a debt has left the shard below zero. ``reservation`` is that of a charge that waits.
    ``moments`` are those at which the slots of the change expire, see ``PlannedSlots``; None if the
    change has no slots. ``life`` is that of the bucket which the slots belong to. ``quota_holds``
    are the amounts of quotas that a charge holds, ``renewed_quotas`` the seconds at which renewed
    ones expire; None for those that have expired. ``is_overdrawn`` says that a charge in shadow
    mode has taken a limit of an unsplit bucket below zero. ``numbers`` are those of the lives of
    the limits, by stored name, which the slots belong to.
    """

    image: BucketImage | None
    spilled_milli: Mapping[str, int] | None = None
    is_short: bool = False
    is_whole: bool = True
    reservation: Reservation | None = None
    moments: Moments | None = None
    life: str = ""
    quota_holds: tuple[QuotaHold, ...] = ()
    renewed_quotas: tuple[int | None, ...] = ()
    is_overdrawn: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Rejected:
    """The charge does not fit into the bucket or shard as it was at the stamp."""

    image: BucketImage
    now_ms: int
    shard: Shard = WHOLE


class ShardMerged:
    """Nothing was written: the shard does not exist any more."""

    __slots__ = ()


SHARD_MERGED = ShardMerged()
Outcome = Applied | Rejected | ShardMerged | StaleLimits | ZAELimiterError


def outcomes_of_write(
    changes: Sequence[BucketChange],
    positions: Sequence[int],
    bucket: StoredBucket,
    now_ms: int,
    moments: Mapping[int, Moments] | None,
    quotas: PlannedQuotas | None = None,
) -> Sequence[Outcome | None]:
    """Return the outcomes of changes, given the item after a write that carried some of them.

    Those at ``positions`` were applied. The other charges are judged on the remaining tokens; a
    charge is not judged (None) if the bucket has other limits by now: a write of credits alone
    does not check the limits. ``moments`` are the expiries of slots by position.
    """
    are_all = len(positions) == len(changes)
    carried = changes if are_all else [changes[position] for position in positions]
    applied = applied_outcomes(carried, bucket, now_ms)
    if moments:
        numbers = slot_numbers(bucket.image)
        applied = [
            replace(each, moments=moments.get(position), life=bucket.image.life, numbers=numbers)
            for position, each in zip(positions, applied, strict=True)
        ]
    if quotas is not None:
        life = bucket.image.life
        applied = [
            replace(
                each,
                quota_holds=in_life(quotas.holds.get(position, ()), life),
                renewed_quotas=quotas.renewed.get(position, ()),
            )
            for position, each in zip(positions, applied, strict=True)
        ]
    if are_all:
        return applied
    outcomes: list[Outcome | None] = [None] * len(changes)
    for position, each in zip(positions, applied, strict=True):
        outcomes[position] = each
    for position, change in enumerate(changes):
        if (
            outcomes[position] is None
            and change.is_charge
            and has_limits(bucket.image, change.in_force.at(bucket.shard))
            and not change.fits(bucket.image, now_ms)
        ):
            outcomes[position] = Rejected(image=bucket.image, now_ms=now_ms, shard=bucket.shard)
    return outcomes


def slot_numbers(image: BucketImage) -> dict[str, int]:
    """Return the numbers of the lives of the limits that have slots."""
    return {key: image.limits[key].number for key in image.holds or {}}


def outcomes_behind_others(
    changes: Sequence[BucketChange],
    positions: Sequence[int],
    bucket: StoredBucket,
    now_ms: int,
    moments: Mapping[int, Moments] | None,
    quotas: PlannedQuotas | None,
    doubt: NoAnswer,
) -> Sequence[Outcome | None]:
    """Return the outcomes of a write, given an item that others have written since.

    It shows that the changes at ``positions`` were made. It shows neither the place of a
    reservation in the line, nor a debt of shadow mode, nor the part of a credit that a shard had no
    room for; and the limits may be others by now. Those outcomes are not known: ``doubt``. Of a
    settlement nothing else has to be known than that it was made.
    """
    shown = [position for position in positions if _is_shown(changes[position], bucket)]
    outcomes = list(outcomes_of_write(changes, shown, bucket, now_ms, moments, quotas))
    for position in positions:
        if position not in shown:
            change = changes[position]
            is_all_known = not change.is_charge and not change.renewed and not change.renewed_quotas
            outcomes[position] = Applied(bucket.image) if is_all_known else doubt.copy()
    return outcomes


def _is_shown(change: BucketChange, bucket: StoredBucket) -> bool:
    is_plain = change.until_ms is None and not change.is_debt
    return is_plain and bucket.shard.n == 1 and has_limits(bucket.image, change.in_force)


def applied_outcomes(
    changes: Sequence[BucketChange], bucket: StoredBucket, now_ms: int
) -> list[Applied]:
    """Return the outcomes of changes that were written together, given the item after the write."""
    image = bucket.image
    has_debts = False
    for change in changes:
        if change.until_ms is not None:
            return _with_reservations(changes, bucket, now_ms)
        has_debts = has_debts or change.is_debt
    if bucket.shard.n == 1:
        if has_debts:
            return _with_debts(changes, image, now_ms)
        return [Applied(image)] * len(changes)
    split = {key: state for key, state in image.limits.items() if state.quota is None}
    surplus = {key: max(0, surplus_milli(state, now_ms)) for key, state in split.items()}
    in_debt = {key for key, state in split.items() if level_milli(state, now_ms) < 0}
    outcomes = []
    for change in changes:
        spilled = None if change.is_charge else _spilled(change, surplus)
        is_short = not change.must_fit and any(
            amount > 0 and key in in_debt for key, amount in change.amounts_milli.items()
        )
        is_short = is_short and not change.forfeits
        if is_short:
            in_debt = set()  # one repayment covers the debts of all
        outcomes.append(
            Applied(image=image, spilled_milli=spilled, is_short=is_short, is_whole=False)
        )
    return outcomes


def _with_debts(changes: Sequence[BucketChange], image: BucketImage, now_ms: int) -> list[Applied]:
    """Return the outcomes of a write with charges in shadow mode.

    Each of them sees the bucket without those behind it, so that only the charges that do not fit
    are reported as such. Other charges of the write come behind all of them.
    """
    outcomes = [Applied(image)] * len(changes)
    behind = total(change for change in changes if change.must_fit)
    given = {key: each.charged_milli for key, each in behind.items()}
    for position in range(len(changes) - 1, -1, -1):
        change = changes[position]
        if not change.is_debt:
            continue
        own = after(image, [added_move(key, amount) for key, amount in given.items()])
        outcomes[position] = Applied(
            own, is_overdrawn=not has_no_debt(own, change.amounts_milli, now_ms)
        )
        for key, amount in change.amounts_milli.items():
            given[key] = given.get(key, 0) + amount
    return outcomes


def _with_reservations(
    changes: Sequence[BucketChange], bucket: StoredBucket, now_ms: int
) -> list[Applied]:
    """Return the outcomes of a write with reservations: each is due before those behind it."""
    image, shard = bucket.image, bucket.shard
    as_charges = [replace(change, until_ms=None) for change in changes]
    outcomes = applied_outcomes(as_charges, bucket, now_ms)
    behind: dict[str, int] = {}
    for position in range(len(changes) - 1, -1, -1):
        change = changes[position]
        if not change.must_fit:
            continue
        amounts = change.amounts_milli
        if change.until_ms is not None:
            place = image.writes, position
            outcomes[position] = replace(
                outcomes[position], reservation=reserved(image, amounts, place, behind, shard)
            )
        for key, amount in amounts.items():
            behind[key] = behind.get(key, 0) + amount
    return outcomes


def _spilled(change: BucketChange, surplus: dict[str, int]) -> dict[str, int] | None:
    """Take the part of a change's credits that overflowed out of ``surplus``."""
    if change.forfeits:
        return None
    spilled = {}
    for key, amount in change.amounts_milli.items():
        lost = min(-amount, surplus.get(key, 0))
        if lost > 0:
            spilled[key] = lost
            surplus[key] -= lost
    return spilled
