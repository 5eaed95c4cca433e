"""What callers are told of the limits of a bucket: levels, what is missing, and for how long."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    is_slots,
    level_milli,
    reaches_ms,
)
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.quota_status import window_fields
from zae_limiter.admission.quotas import fits_at_ms
from zae_limiter.admission.rebase import full_bucket, has_limits, is_newer, rebase
from zae_limiter.admission.request import Charge
from zae_limiter.admission.shards.combined import CombinedImage, combine
from zae_limiter.admission.shards.combined import fit_at_ms as fit_together_at_ms
from zae_limiter.admission.slots import retry_after_s, swept
from zae_limiter.admission.switches import under_switch
from zae_limiter.models.status import LimitStatus
from zae_limiter.models.switches import UNENFORCED
from zae_limiter.models.timestamps import MILLI

if TYPE_CHECKING:
    from zae_limiter.models.limit import Limit


def under_limits(image: BucketImage | None, in_force: InForce, now_ms: int) -> BucketImage:
    """Return the bucket under the limits in force; an absent one is full."""
    if image is None:
        return full_bucket(in_force, now_ms)
    if has_limits(image, in_force):
        return image
    if isinstance(image, CombinedImage):
        return _combined_under_limits(image, in_force, now_ms)
    return rebase(image, in_force, now_ms)


def _combined_under_limits(image: CombinedImage, in_force: InForce, now_ms: int) -> BucketImage:
    """Re-base each shard on its own, as the store does."""
    shards = {
        shard: under_limits(shard_image, in_force.at(shard), now_ms)
        for shard, shard_image in image.shards.items()
    }
    return combine(shards, dict(zip(in_force.keys, in_force.rates, strict=True)), now_ms)


def prepared(image: BucketImage | None, charge: Charge, now_ms: int) -> BucketImage | None:
    """Return the bucket under the limits of a charge; None if it has seen newer configuration.

    A caller that has read the configuration again because of that gets what it has read.
    """
    in_force = charge.in_force
    if image is None or has_limits(image, in_force):
        return image or full_bucket(in_force, now_ms)
    if is_newer(image, in_force) and not charge.refreshed:
        return None
    return under_limits(image, in_force, now_ms)


def statuses(charge: Charge, seen: BucketImage, now_ms: int) -> list[LimitStatus]:
    """Compare a charge with every limit in force of one bucket.

    While the bucket is paused, every limit of it is exceeded.
    """
    compared, paused_s = [], paused_seconds(seen, now_ms)
    if seen.holds:
        seen = swept(seen, now_ms)
    waits = _waits_together(charge, seen, now_ms) if isinstance(seen, CombinedImage) else {}
    for limit, (key, amount_milli) in zip(
        charge.in_force.limits, charge.amounts_milli.items(), strict=True
    ):
        state = seen.limits[key]
        level = level_milli(state, now_ms)
        retry_after = waits.get(key)
        exceeded = level < amount_milli
        if state.rate.terms is not None:
            listed = _status_under_terms(charge, limit, key, seen, now_ms)
            if paused_s:
                listed = replace(
                    listed,
                    exceeded=True,
                    paused_seconds=paused_s,
                    retry_after_seconds=max(paused_s, listed.retry_after_seconds),
                )
            compared.append(listed)
            continue
        if is_slots(state.rate):
            fits = amount_milli <= limit.capacity_milli  # the capacity of all shards together
            retry_after = retry_after_s(seen, key, amount_milli, now_ms) if fits else math.inf
        elif retry_after is None:
            retry_after = retry_after_seconds(state, amount_milli, now_ms)
        compared.append(
            LimitStatus(
                charge.entity_id,
                charge.resource,
                limit.name,
                limit,
                level // MILLI,
                amount_milli // MILLI,
                exceeded or paused_s > 0,
                max(retry_after, paused_s),
                paused_s,
            )
        )
    if charge.switch is not None:
        compared = [under_switch(each, charge.switch, now_ms) for each in compared]
    return with_one_wait(compared, now_ms)


def statuses_of_all(
    charges: Iterable[Charge], images: Iterable[BucketImage | None], now_ms: int
) -> list[LimitStatus]:
    """Compare all charges of a request with their buckets, as they were read."""
    listed: list[LimitStatus] = []
    for charge, image in zip(charges, images, strict=True):
        listed += statuses(charge, under_limits(image, charge.in_force, now_ms), now_ms)
    return with_one_wait(listed, now_ms)


def with_one_wait(compared: list[LimitStatus], now_ms: int) -> list[LimitStatus]:
    """Return the statuses of one request, whose longest wait is that of the whole request.

    A quota may hold more than its amount by a top-up, which ends with its window. A request that
    needs the top-up, and waits for another limit until then, never fits.
    """
    if True not in [_needs_top_up(each) for each in compared]:  # as nearly always
        return compared
    wait_s = max([each.retry_after_seconds for each in compared if each.exceeded], default=0.0)
    if not wait_s:
        return compared
    over_ms = now_ms + wait_s * 1000
    return [
        replace(each, exceeded=True, retry_after_seconds=math.inf)
        if _needs_top_up(each) and _ends_by(each, over_ms)
        else each
        for each in compared
    ]


def _needs_top_up(status: LimitStatus) -> bool:
    limit = status.limit
    if not limit.is_quota or limit.soft or status.mode in UNENFORCED:
        return False
    return status.requested > limit.amount


def _ends_by(status: LimitStatus, moment_ms: float) -> bool:
    end = status.window_end
    return end is not None and end.timestamp() * 1000 <= moment_ms


def _status_under_terms(
    charge: Charge, limit: Limit, key: str, seen: BucketImage, now_ms: int
) -> LimitStatus:
    """Compare a charge with a quota or a soft limit."""
    state, amount = seen.limits[key], charge.amounts_milli[key]
    level, retry_after = level_milli(state, now_ms), 0.0
    exceeded = not limit.soft and level < amount
    if exceeded and state.quota is None:
        retry_after = retry_after_seconds(state, amount, now_ms)
    elif exceeded:
        moment_ms = fits_at_ms(state, amount, now_ms)
        retry_after = math.inf if moment_ms is None else max(0, moment_ms - now_ms) / 1000
    return LimitStatus(
        entity_id=charge.entity_id,
        resource=charge.resource,
        limit_name=limit.name,
        limit=limit,
        available=limit.shown(level),
        requested=limit.shown(amount),
        exceeded=exceeded,
        retry_after_seconds=retry_after,
        overdrawn=level < 0,
        **window_fields(limit, state, now_ms),
    )


def paused_seconds(image: BucketImage, now_ms: int) -> float:
    """Return for how long the bucket is still paused; 0 if it is not."""
    until_ms = image.paused_until_ms
    return 0.0 if until_ms is None else max(0, until_ms - now_ms) / 1000


def retry_after_seconds(state: LimitState, amount_milli: int, now_ms: int) -> float:
    """Return the exact wait until the level reaches the amount; infinite beyond the capacity."""
    if amount_milli > state.rate.capacity_milli:
        return math.inf
    return max(0, reaches_ms(state, amount_milli) - now_ms) / 1000


def _waits_together(charge: Charge, seen: CombinedImage, now_ms: int) -> dict[str, float]:
    """Return the seconds until the shards of a bucket hold the amounts, by stored name."""
    if not seen.shards:
        return {}
    return {
        key: math.inf if moment_ms is None else max(0, moment_ms - now_ms) / 1000
        for key, moment_ms in fit_together_at_ms(
            list(seen.shards.values()), charge.amounts_milli, now_ms
        ).items()
    }
