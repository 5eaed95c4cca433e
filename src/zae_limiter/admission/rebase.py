"""Bringing a bucket to the limits in force, without minting or losing a token."""

from __future__ import annotations

from zae_limiter.admission.image import (
    HOUR_MS,
    BucketImage,
    LimitState,
    Rate,
    full_balance,
    level_milli,
)
from zae_limiter.admission.in_force import InForce, alias_of


def fresh(in_force: InForce, now_ms: int) -> BucketImage:
    """A full bucket: what an absent one stands for."""
    limits = {
        name: full(rate, now_ms) for name, rate in zip(in_force.names, in_force.rates, strict=True)
    }
    return BucketImage(limits, in_force.version, None, now_ms // HOUR_MS)


def full(rate: Rate, now_ms: int) -> LimitState:
    """One limit at its capacity."""
    return LimitState(full_balance(rate, now_ms), rate)


def governs(image: BucketImage, in_force: InForce) -> bool:
    """Whether the bucket holds exactly the limits in force under their own names.

    Balances count from the epoch at the limit's own rate: charging one with another rate would
    be off by years of accrual, so no charge goes past this check. Extra limits do not matter.
    """
    limits = image.limits
    for name, rate in zip(in_force.names, in_force.rates, strict=True):
        state = limits.get(name)
        if state is None or state.rate != rate:
            return False
    return True


def is_newer(image: BucketImage, in_force: InForce) -> bool:
    """Whether the bucket has seen a newer configuration than the caller."""
    return not in_force.is_override and image.config_version > in_force.version


def rebase(
    image: BucketImage, in_force: InForce, now_ms: int
) -> tuple[BucketImage, tuple[str, ...]]:
    """The bucket with the limits in force, and the stored name of each of them.

    Stored configuration changes a differing limit in place. Limits that a call brought do so
    only where no configuration governs; otherwise they live beside the configured ones, since
    switching back and forth would give each the other's tokens. A limit is never removed.
    """
    beside = in_force.is_override and image.config_version > 0
    limits = dict(image.limits)
    keys = []
    for name, rate in zip(in_force.names, in_force.rates, strict=True):
        state = limits.get(name)
        key = name
        if beside and state is not None and state.rate != rate:
            key = alias_of(name, rate)
            state = limits.get(key)
        limits[key] = full(rate, now_ms) if state is None else _at_rate(state, rate, now_ms)
        keys.append(key)
    version = max(image.config_version, in_force.version)
    return image._replace(limits=limits, config_version=version), tuple(keys)


def _at_rate(state: LimitState, rate: Rate, now_ms: int) -> LimitState:
    """The same level, from now on at another rate; a larger capacity fills up over time."""
    if state.rate == rate:
        return state
    level = min(level_milli(state, now_ms), rate.capacity_milli)
    balance = level - rate.capacity_milli + full_balance(rate, now_ms)
    return state._replace(balance_milli=balance, rate=rate)
