"""Re-basing: bringing a bucket to the limits in force without creating or losing a token."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from zae_limiter.admission.image import (
    HOUR_MS,
    BucketImage,
    LimitState,
    Rate,
    full_balance,
    is_full,
    is_quota,
    is_slots,
)
from zae_limiter.admission.in_force import InForce, is_alias, plain_name
from zae_limiter.admission.moves import rebase_move
from zae_limiter.admission.quotas import (
    full_quota,
    has_same_windows,
    held_usage,
    is_same_quota,
    rebase_quota,
)
from zae_limiter.admission.shards.tree import Shard, effective
from zae_limiter.admission.slots import with_slot_limits
from zae_limiter.admission.usage import with_through_children
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import CONCURRENT_PLACES, QUOTA_PLACES, Limit, places_of

# The limits that one bucket may hold; one on calls in flight counts as CONCURRENT_PLACES. Some
# writes name each of them, and DynamoDB takes 4,096 bytes and 300 operators in an expression:
# tests/unit/dynamodb/test_longest_writes.py measures the longest of every kind.
MAX_STORED = 44


def full_bucket(in_force: InForce, now_ms: int) -> BucketImage:
    """Return a full bucket. A full bucket and an absent one are the same."""
    limits = {
        key: full_limit(rate, now_ms)
        for key, rate in zip(in_force.keys, in_force.rates, strict=True)
    }
    image = BucketImage(limits, in_force.governing_version, None, now_ms // HOUR_MS)
    return with_slot_limits(image) if in_force.slot_keys else image


def full_limit(rate: Rate, now_ms: int, number: int = 0) -> LimitState:
    """Return one limit at its capacity; ``number`` is that of the life which it begins."""
    if is_quota(rate):
        return replace(full_quota(rate, now_ms), number=number)
    return LimitState(full_balance(rate, now_ms), rate, number=number if is_slots(rate) else 0)


def has_limits(image: BucketImage, in_force: InForce) -> bool:
    """Tell whether the bucket holds every limit in force, with the same parameters.

    A balance counts from the epoch at the limit's own rate. A charge at another rate would be off
    by years of accrual, so every charge makes this check first. The bucket may hold other limits
    as well.
    """
    limits = image.limits
    for key, rate in in_force.keyed_rates:
        state = limits.get(key)
        if state is None or state.rate != rate:
            return False
    return True


def is_newer(image: BucketImage, in_force: InForce) -> bool:
    """Tell whether the bucket has seen a newer configuration than the caller."""
    return image.config_version > in_force.version


def rebase(image: BucketImage, in_force: InForce, now_ms: int) -> BucketImage:
    """Return the bucket with the limits in force.

    A limit with other parameters keeps its level, and a missing limit is added full. A limit that
    is not in force stays in the bucket until it is full, which is the same as absent. Calls with
    limits of their own drop configured limits only for room: the next call needs them again.
    """
    limits, number = dict(image.limits), image.writes
    for key, rate in zip(in_force.keys, in_force.rates, strict=True):
        state = limits.get(key)
        if state is None:
            limits[key] = full_limit(rate, now_ms, number)
        else:
            limits[key] = at_rate(state, rate, now_ms, number)
    _forget_dead_calls(limits, in_force.keys, now_ms)
    target = _with_children_forgotten(image, limits)
    for key in droppable(target, in_force.keys, now_ms):
        if is_alias(key) or in_force.governing_version or not has_room(limits):
            drop(key, limits)
    if not has_room(limits):
        raise too_many_stored(len(limits))
    version = max(image.config_version, in_force.governing_version)
    rebased = target._replace(limits=limits, config_version=version)
    return with_slot_limits(rebased) if in_force.slot_keys or image.holds else rebased


def with_others(
    target: BucketImage,
    before: BucketImage,
    keys: Collection[str],
    rates: Mapping[str, Rate],
    shard: Shard,
    now_ms: int,
) -> BucketImage:
    """Return ``target`` with all these limits: as they were in ``before``, or else full.

    ``rates`` are those of the whole bucket, of which ``target`` is one shard.
    """
    number = target.writes
    added = {
        key: before.limits.get(key) or full_limit(effective(rates[key], shard), now_ms, number)
        for key in keys
        if key not in target.limits
    }
    return target._replace(limits={**target.limits, **added}) if added else target


def at_rate(state: LimitState, rate: Rate, now_ms: int, number: int) -> LimitState:
    """Return a limit with another rate and the same level.

    Under another kind, calendar or currency it begins another life, which has this ``number``.
    """
    if state.rate == rate:
        return state
    if is_quota(state.rate) or is_quota(rate):
        return _at_quota(state, rate, now_ms, number)
    balance = rebase_move("", state, rate, now_ms).applied(state.balance_milli)
    if is_slots(state.rate) == is_slots(rate):
        number = state.number
    elif not is_slots(rate):
        number = 0
    return replace(state, balance_milli=balance, rate=rate, number=number)


def _at_quota(state: LimitState, rate: Rate, now_ms: int, number: int) -> LimitState:
    """Return a quota under other terms; a limit of another kind begins full."""
    if is_same_quota(state.rate, rate):
        after = replace(rebase_quota("", state, rate, now_ms).applied(state), rate=rate)
        return after if has_same_windows(state.rate, rate) else replace(after, number=number)
    full, (held, _) = full_limit(rate, now_ms, number), held_usage(state)
    consumed = state.consumed_milli - held  # these calls count their costs at their ends
    return replace(full, consumed_milli=consumed, counted_milli=state.counted_milli)


def _forget_dead_calls(limits: dict[str, LimitState], wanted: Collection[str], now_ms: int) -> None:
    """Return what dead calls hold of quotas that nobody needs: no charge of them will do that."""
    for key, state in limits.items():
        quota = state.quota
        if key not in wanted and quota is not None and quota.holds and is_full(state, now_ms):
            consumed = state.consumed_milli - held_usage(state)[0]
            limits[key] = replace(state, consumed_milli=consumed, quota=quota._replace(holds={}))


def _with_children_forgotten(image: BucketImage, limits: dict[str, LimitState]) -> BucketImage:
    """Return the bucket with other limits; what they forget of children is not their usage."""
    forgotten = forgotten_of_children(image.limits, limits)
    through = with_through_children(image.through_children, forgotten)
    return image._replace(limits=limits, through_children=through)


def _without_heritage(before: LimitState | None, after: LimitState) -> int:
    """Return the consumption of a limit after a re-base, without that of dropped limits."""
    if before is None:
        return 0
    return before.consumed_milli - (held_usage(before)[0] - held_usage(after)[0])


def forgotten_of_children(
    before: Mapping[str, LimitState], after: Mapping[str, LimitState]
) -> dict[str, int]:
    """Return the change of the usage through children by what quotas forget, by stored name."""
    changes = {
        key: held_usage(after.get(key))[1] - held_usage(state)[1] for key, state in before.items()
    }
    return {key: change for key, change in changes.items() if change}


def droppable(image: BucketImage, wanted: Collection[str], now_ms: int) -> list[str]:
    """Return the full limits that are not wanted and whose usage is not lost with them.

    The usage of the current hour is either nothing, or another limit of the same name inherits it.
    """
    remaining = dict.fromkeys(image.limits)
    found = []
    for key in sorted(image.limits, key=is_plain):  # aliases first: plain names inherit
        if key in wanted or not is_full(image.limits[key], now_ms):
            continue
        if namesake(key, remaining) is not None or is_unused(image, plain_name(key)):
            del remaining[key]
            found.append(key)
    return found


def is_plain(key: str) -> bool:
    return not is_alias(key)


def is_unused(image: BucketImage, name: str) -> bool:
    """Tell whether no limit of a plain name has counted anything in the current hour."""
    if image.through_children and image.through_children.get(name):
        return False
    return all(
        state.consumed_milli == state.counted_milli
        for key, state in image.limits.items()
        if plain_name(key) == name
    )


def drop(key: str, limits: dict[str, LimitState]) -> None:
    """Remove a limit, and add its usage of this hour to another limit of the same name."""
    dropped = limits.pop(key)
    uncounted = dropped.consumed_milli - dropped.counted_milli
    heir = namesake(key, limits)
    if heir is not None:
        kept = limits[heir]
        limits[heir] = replace(kept, consumed_milli=kept.consumed_milli + uncounted)
    else:
        assert not uncounted, "the usage of a dropped limit needs another limit of the same name"


def has_room(limits: Mapping[str, LimitState]) -> bool:
    """Tell whether one bucket may hold all these limits."""
    return sum(_places(state.rate) for state in limits.values()) <= MAX_STORED


def _places(rate: Rate) -> int:
    if is_slots(rate):
        return CONCURRENT_PLACES
    return QUOTA_PLACES if is_quota(rate) else 1


def check_replacement(before: Iterable[Limit], after: Iterable[Limit]) -> None:
    """Raise ValidationError if one bucket cannot hold the limits of a level and their successors.

    Buckets in use hold the old limits until these are full and their hour of usage is over.
    """
    places: dict[str, int] = {}
    for limit in (*before, *after):
        places[limit.name] = max(places_of(limit), places.get(limit.name, 0))
    if sum(places.values()) > MAX_STORED:
        raise ValidationError(
            "limits",
            len(places),
            f"are too many together with those that they replace: a bucket holds at most "
            f"{MAX_STORED}, and the replaced ones leave it once they are full and their hour of "
            "usage is over; replace some of them now and the others later",
        )


def too_many_stored(count: int) -> ValidationError:
    """Return the error for a bucket that has no room for the limits in force."""
    return ValidationError(
        "limits",
        count,
        f"a bucket holds at most {MAX_STORED} different limits, and other limits leave it once "
        "they are full and their hour of usage is over; use fewer different limits",
    )


def namesake(key: str, limits: Collection[str]) -> str | None:
    """Return the stored name of another limit with the same plain name; None if there is none."""
    name = plain_name(key)
    if name in limits and name != key:
        return name
    return next((other for other in limits if other != key and plain_name(other) == name), None)


def without_drops(
    before: BucketImage, target: BucketImage, allowed: Collection[str] = ()
) -> BucketImage:
    """Return ``target`` with the dropped limits of ``before`` put back, except the allowed ones.

    Some writes cannot drop limits at all, and others can drop a few. What quotas forget of calls
    stays forgotten, and no limit has the usage of those that are put back.
    """
    dropped = [key for key in before.limits if key not in target.limits]
    if all(key in allowed for key in dropped):
        return target
    limits = {
        key: replace(state, consumed_milli=_without_heritage(before.limits.get(key), state))
        for key, state in target.limits.items()
    }
    limits |= {key: before.limits[key] for key in dropped}
    for key in dropped:
        if key in allowed:
            drop(key, limits)
    restored = target._replace(limits=limits)
    return restored if before.holds is None else with_slot_limits(restored)
