"""The outcomes of changes to a bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zae_limiter.admission.decide import Decision
from zae_limiter.admission.fit import admits, has_no_debt
from zae_limiter.admission.image import BucketImage, level_milli
from zae_limiter.admission.moves import added_move, after, surplus_milli
from zae_limiter.admission.quotas import QuotaHold, in_life
from zae_limiter.admission.rebase import has_limits
from zae_limiter.admission.request import BucketChange, StaleLimits
from zae_limiter.admission.reservation import Reservation, reserved
from zae_limiter.admission.shards.tree import WHOLE, Shard
from zae_limiter.admission.slots import SlotHold, slots_in_life
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.store_errors import NoAnswer


@dataclass(slots=True)
class Applied:
    """The change is committed; ``image`` is the bucket or shard after the write.

    ``is_whole`` says that the image is the whole bucket. Two things are left to other shards:
    ``spilled_milli`` is the part of a credit that the shard has no room for, ``is_short`` says that
    a debt has left the shard below zero. ``reservation`` is that of a charge that waits. ``slots``
    and ``quota_holds`` are what a charge holds, and ``renewed`` the moments at which renewed holds
    expire. ``is_overdrawn`` says that a charge in shadow mode has taken a limit of an unsplit
    bucket below zero.
    """

    image: BucketImage | None
    spilled_milli: Mapping[str, int] | None = None
    is_short: bool = False
    is_whole: bool = True
    reservation: Reservation | None = None
    slots: tuple[SlotHold, ...] = ()
    quota_holds: tuple[QuotaHold, ...] = ()
    renewed: tuple[int | None, ...] = ()
    is_overdrawn: bool = False


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
    decision: Decision, positions: Sequence[int], bucket: StoredBucket, now_ms: int
) -> Sequence[Outcome | None]:
    """Return the outcomes of changes, given the item after a write that carried some of them.

    Those at ``positions`` were applied. The other charges are judged on the remaining tokens; a
    charge is not judged (None) if the bucket has other limits by now: a write of credits alone
    does not check the limits.
    """
    changes = decision.changes
    are_all = len(positions) == len(changes)
    carried = changes if are_all else [changes[position] for position in positions]
    applied = applied_outcomes(carried, bucket, now_ms)
    if decision.has_slots or decision.has_quotas:
        image = bucket.image
        applied = [
            replace(
                each,
                slots=slots_in_life(decision.taken_slots(position), image),
                quota_holds=in_life(decision.taken_quotas(position), image.life),
                renewed=decision.renewed(position),
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
            and not admits(bucket.image, change, now_ms)
        ):
            outcomes[position] = Rejected(image=bucket.image, now_ms=now_ms, shard=bucket.shard)
    return outcomes


def outcomes_behind_others(
    decision: Decision, bucket: StoredBucket, now_ms: int, doubt: NoAnswer
) -> Sequence[Outcome | None]:
    """Return the outcomes of a write, given an item that others have written since.

    It shows that the carried changes were made. It shows neither the place of a reservation in the
    line, nor a debt of shadow mode, nor the part of a credit that a shard had no room for; and the
    limits may be others by now. Those outcomes are not known: ``doubt``. Of a settlement nothing
    else has to be known than that it was made.
    """
    changes, positions = decision.changes, decision.carried
    shown = [position for position in positions if _is_shown(changes[position], bucket)]
    outcomes = list(outcomes_of_write(decision, shown, bucket, now_ms))
    for position in positions:
        if position not in shown:
            change = changes[position]
            is_all_known = not (change.is_charge or change.renewed or change.renewed_quotas)
            outcomes[position] = Applied(bucket.image) if is_all_known else doubt.copy()
    return outcomes


def _is_shown(change: BucketChange, bucket: StoredBucket) -> bool:
    is_plain = change.until_ms is None and not change.is_debt
    return is_plain and bucket.shard.n == 1 and has_limits(bucket.image, change.in_force)


def applied_outcomes(
    changes: Sequence[BucketChange], bucket: StoredBucket, now_ms: int
) -> list[Applied]:
    """Return the outcomes of changes that were written together, given the item after the write."""
    for change in changes:
        if change.until_ms is not None:
            return _with_reservations(changes, bucket, now_ms)
    return _outcomes_at_once(changes, bucket, now_ms)


def _outcomes_at_once(
    changes: Sequence[BucketChange], bucket: StoredBucket, now_ms: int
) -> list[Applied]:
    """Return the outcomes of changes, as if none of them were a reservation."""
    image = bucket.image
    if bucket.shard.n == 1:
        for change in changes:
            if change.is_debt:
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
    given: dict[str, int] = {}
    for change in changes:
        for key, amount in change.amounts_milli.items() if change.must_fit else ():
            if key not in change.in_force.soft_keys:
                given[key] = given.get(key, 0) + amount
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
    outcomes = _outcomes_at_once(changes, bucket, now_ms)
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
