"""Deciding a charge: the one gate that must never let too much through."""

from __future__ import annotations

import math
from typing import NamedTuple

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    accrued_since_epoch,
    level_milli,
    reaches_ms,
)
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import fresh, governs, is_newer, rebase
from zae_limiter.admission.request import Charge
from zae_limiter.admission.shards.outlook import SplitImage, fit_at_ms, together
from zae_limiter.models.limit import MILLI
from zae_limiter.models.status import LimitStatus

CENTURY_MS = 100 * 366 * 86_400_000  # kept that long is kept for ever


class Plan(NamedTuple):
    """A decision about one bucket: the state to write, or None if it does not fit."""

    granted: BucketImage | None
    seen: BucketImage  # the bucket the decision was taken on


def view(image: BucketImage | None, in_force: InForce, now_ms: int) -> BucketImage:
    """The bucket as it stands under the limits in force."""
    if image is None:
        return fresh(in_force, now_ms)
    if governs(image, in_force):
        return image
    if isinstance(image, SplitImage):
        return _split_view(image, in_force, now_ms)
    return rebase(image, in_force, now_ms)


def _split_view(image: SplitImage, in_force: InForce, now_ms: int) -> BucketImage:
    """Each shard comes to the limits in force by itself."""
    shards = {shard: view(each, in_force.at(shard), now_ms) for shard, each in image.shards.items()}
    return together(shards, dict(zip(in_force.keys, in_force.rates, strict=True)), now_ms)


def plan_charge(
    image: BucketImage | None,
    charge: Charge,
    now_ms: int,
    refreshed: bool = False,
    is_acquire: bool = True,
) -> Plan | None:
    """Charge every limit or none; None if the caller's configuration is out of date."""
    in_force = charge.in_force
    if image is not None and governs(image, in_force):
        seen = image
    elif image is not None and is_newer(image, in_force) and not refreshed:
        return None
    else:
        seen = view(image, in_force, now_ms)
    limits = dict(seen.limits)
    for key, amount_milli in zip(in_force.keys, charge.amounts_milli, strict=True):
        after = take(limits[key], amount_milli, now_ms)
        if after is None:
            return Plan(None, seen)
        limits[key] = after
    granted = BucketImage(
        limits,
        seen.config_version or in_force.governing_version,
        kept_until(seen.expires_ms, in_force, now_ms),
        seen.window_hour,
        seen.admitted + is_acquire,
        seen.admitted_counted,
        seen.writes + 1,
    )
    return Plan(granted, seen)


def take(state: LimitState, amount_milli: int, now_ms: int) -> LimitState | None:
    """One limit less ``amount_milli``; None if it does not hold that much at the stamp.

    An amount of 0 asks for a level that is not below zero: a debt stops every call until it
    is repaid, also calls that do not name the limit.
    """
    balance, rate, consumed, counted = state
    accrued = accrued_since_epoch(rate, now_ms)
    full = rate.capacity_milli - accrued
    if balance > full:
        balance = full  # what ran over while idle is gone
    if balance + accrued < amount_milli:
        return None
    if amount_milli == 0:
        return state
    return LimitState(balance - amount_milli, rate, consumed + amount_milli, counted)


def kept_until(expires_ms: int | None, in_force: InForce, now_ms: int) -> int | None:
    """When a bucket may be forgotten; moved on when less than half of the time is left."""
    keep_ms = in_force.keep_ms
    if keep_ms is None:
        return None
    if expires_ms is not None and expires_ms - now_ms > keep_ms // 2:
        return expires_ms
    return now_ms + keep_ms if keep_ms < CENTURY_MS else None


def statuses(charge: Charge, seen: BucketImage, now_ms: int) -> list[LimitStatus]:
    """How the request stands against every limit in force of one bucket."""
    found = []
    waits = _waits_together(charge, seen, now_ms) if isinstance(seen, SplitImage) else {}
    for limit, key, amount_milli in zip(
        charge.in_force.limits, charge.in_force.keys, charge.amounts_milli, strict=True
    ):
        state = seen.limits[key]
        level = level_milli(state, now_ms)
        retry_after = waits.get(key)
        if retry_after is None:
            retry_after = retry_after_seconds(state, amount_milli, now_ms)
        found.append(
            LimitStatus(
                entity_id=charge.entity_id,
                resource=charge.resource,
                limit_name=limit.name,
                limit=limit,
                available=level // MILLI,
                requested=amount_milli // MILLI,
                exceeded=level < amount_milli,
                retry_after_seconds=retry_after,
            )
        )
    return found


def retry_after_seconds(state: LimitState, amount_milli: int, now_ms: int) -> float:
    """The exact wait until the level holds the amount; infinite beyond the capacity."""
    if amount_milli > state.rate.capacity_milli:
        return math.inf
    return max(0, reaches_ms(state, amount_milli) - now_ms) / 1000


def _waits_together(charge: Charge, seen: SplitImage, now_ms: int) -> dict[str, float]:
    """Seconds until the shards of a bucket hold the amounts, by stored name."""
    if not seen.shards:
        return {}
    amounts = dict(zip(charge.in_force.keys, charge.amounts_milli, strict=True))
    return {
        key: math.inf if moment_ms is None else max(0, moment_ms - now_ms) / 1000
        for key, moment_ms in fit_at_ms(list(seen.shards.values()), amounts, now_ms).items()
    }
