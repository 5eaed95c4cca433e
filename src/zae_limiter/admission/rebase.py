"""Re-basing: bringing a bucket to the limits in force without creating or losing a token."""

from __future__ import annotations

from collections.abc import Collection

from zae_limiter.admission.image import (
    HOUR_MS,
    BucketImage,
    LimitState,
    Rate,
    full_balance,
    is_full,
)
from zae_limiter.admission.in_force import InForce, is_alias, plain_name
from zae_limiter.admission.moves import rebase_move
from zae_limiter.admission.slots import with_slot_limits
from zae_limiter.exceptions import ValidationError

MAX_STORED = 64  # twice the limits that one call may bring; it bounds the size of an item


def full_bucket(in_force: InForce, now_ms: int) -> BucketImage:
    """Return a full bucket. A full bucket and an absent one are the same."""
    limits = {
        key: full_limit(rate, now_ms)
        for key, rate in zip(in_force.keys, in_force.rates, strict=True)
    }
    image = BucketImage(limits, in_force.governing_version, None, now_ms // HOUR_MS)
    return with_slot_limits(image) if in_force.slot_keys else image


def full_limit(rate: Rate, now_ms: int) -> LimitState:
    """Return one limit at its capacity."""
    return LimitState(full_balance(rate, now_ms), rate)


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

    A limit with other parameters keeps its level, and a missing limit is added full. Limits that
    are not in force stay in the bucket, but those that earlier calls brought are dropped once full.
    """
    limits = dict(image.limits)
    for key, rate in zip(in_force.keys, in_force.rates, strict=True):
        state = limits.get(key)
        limits[key] = full_limit(rate, now_ms) if state is None else at_rate(state, rate, now_ms)
    _drop_full_aliases(limits, in_force.keys, now_ms)
    if len(limits) > MAX_STORED:
        raise ValidationError(
            "limits",
            len(limits),
            f"a bucket holds at most {MAX_STORED} different limits, those of recent calls "
            "included; store changing limits with set_limits()",
        )
    version = max(image.config_version, in_force.governing_version)
    rebased = image._replace(limits=limits, config_version=version)
    return with_slot_limits(rebased) if in_force.slot_keys or image.holds else rebased


def at_rate(state: LimitState, rate: Rate, now_ms: int) -> LimitState:
    """Return a limit with another rate and the same level."""
    if state.rate == rate:
        return state
    balance = rebase_move("", state, rate, now_ms).applied(state.balance_milli)
    return state._replace(balance_milli=balance, rate=rate)


def _drop_full_aliases(limits: dict[str, LimitState], wanted: Collection[str], now_ms: int) -> None:
    """Drop full limits of earlier calls, and add their usage to another limit of the same name."""
    for key in [key for key in limits if is_alias(key) and key not in wanted]:
        if namesake(key, limits) is not None and is_full(limits[key], now_ms):
            _drop(key, limits)


def _drop(key: str, limits: dict[str, LimitState]) -> None:
    dropped = limits.pop(key)
    heir = namesake(key, limits)
    assert heir is not None, "the usage of a dropped limit needs another limit of the same name"
    uncounted = dropped.consumed_milli - dropped.counted_milli
    kept = limits[heir]
    limits[heir] = kept._replace(consumed_milli=kept.consumed_milli + uncounted)


def namesake(key: str, limits: Collection[str]) -> str | None:
    """Return the stored name of another limit with the same plain name; None if there is none."""
    name = plain_name(key)
    if name in limits:
        return name
    return next((other for other in limits if other != key and plain_name(other) == name), None)


def without_drops(before: BucketImage, target: BucketImage, *, allowed: int = 0) -> BucketImage:
    """Return ``target`` with the dropped limits of ``before`` put back, except ``allowed`` of them.

    Some writes cannot drop limits at all, and others can drop one.
    """
    dropped = [key for key in before.limits if key not in target.limits]
    if len(dropped) <= allowed:
        return target
    limits = {
        key: state._replace(
            consumed_milli=before.limits[key].consumed_milli if key in before.limits else 0
        )
        for key, state in target.limits.items()
    }
    limits |= {key: before.limits[key] for key in dropped}
    for key in dropped[:allowed]:
        _drop(key, limits)
    return target._replace(limits=limits)
