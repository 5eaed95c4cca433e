"""Re-basing: a bucket is brought to the limits in force, without creating or losing a token."""

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

MAX_STORED = 64  # twice what one call may bring; bounds the size of an item


def full_bucket(in_force: InForce, now_ms: int) -> BucketImage:
    """Return a full bucket, which is the same as an absent one."""
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
    """Whether the bucket holds exactly the limits in force.

    Balances count from the epoch at the limit's own rate: charging one with another rate would
    be off by years of accrual, so no charge goes past this check. Extra limits do not matter.
    """
    limits = image.limits
    for key, rate in in_force.keyed_rates:
        state = limits.get(key)
        if state is None or state.rate != rate:
            return False
    return True


def is_newer(image: BucketImage, in_force: InForce) -> bool:
    """Whether the bucket has seen a newer configuration than the caller."""
    return image.config_version > in_force.version


def rebase(image: BucketImage, in_force: InForce, now_ms: int) -> BucketImage:
    """Return the bucket with the limits in force: others keep their level, missing ones are full.

    Limits that are not in force stay, unchecked; those of earlier calls are dropped once full.
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
    """Return one limit at another rate, with the same level."""
    if state.rate == rate:
        return state
    balance = rebase_move("", state, rate, now_ms).applied(state.balance_milli)
    return state._replace(balance_milli=balance, rate=rate)


def _drop_full_aliases(limits: dict[str, LimitState], wanted: Collection[str], now_ms: int) -> None:
    """Drop full limits of earlier calls; their usage is added to another limit of that name."""
    for key in [key for key in limits if is_alias(key) and key not in wanted]:
        if namesake(key, limits) is not None and is_full(limits[key], now_ms):
            _drop(key, limits)


def _drop(key: str, limits: dict[str, LimitState]) -> None:
    dropped = limits.pop(key)
    heir = namesake(key, limits)
    assert heir is not None, "what it has used needs another limit of the name"
    uncounted = dropped.consumed_milli - dropped.counted_milli
    kept = limits[heir]
    limits[heir] = kept._replace(consumed_milli=kept.consumed_milli + uncounted)


def namesake(key: str, limits: Collection[str]) -> str | None:
    """Return the stored name of another limit that users know under the same name."""
    name = plain_name(key)
    if name in limits:
        return name
    return next((other for other in limits if other != key and plain_name(other) == name), None)


def without_drops(before: BucketImage, target: BucketImage, *, allowed: int = 0) -> BucketImage:
    """Return ``target`` with the limits that it drops from ``before``, except the first few.

    Some writes cannot drop any, or one at most.
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
