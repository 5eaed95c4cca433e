"""The shards of a bucket combined into one image.

The image of a shard has the shard's own rates (``tree.of_shard``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    is_quota,
    level_milli,
    reaches_ms,
)
from zae_limiter.admission.quotas import fits_at_ms as quota_fits_at_ms
from zae_limiter.admission.quotas import full_quota
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.admission.slots import swept
from zae_limiter.admission.tally import total


class CombinedImage(BucketImage):
    """The image of a bucket that has been split; ``shards`` are the images of its shards.

    A copy made by ``_replace`` has no shards, since they would not match the limits of the copy.
    """

    shards: Mapping[Shard, BucketImage] = {}


def combine(
    shards: Mapping[Shard, BucketImage], rates: Mapping[str, Rate], now_ms: int
) -> CombinedImage:
    """Add up the shards at one moment; ``rates`` are those of the whole bucket, by stored name.

    Levels, consumption and counts are sums. The image is valid for that moment only: shards that
    are full at different times fill more slowly together than one bucket would.
    """
    limits, holds = {}, None
    if any(image.holds is not None for image in shards.values()):
        shards = {shard: swept(image, now_ms) for shard, image in shards.items()}
        holds = _all_holds(shards.values())
    images = shards.values()
    for key, rate in rates.items():
        states = [image.limits[key] for image in images if key in image.limits]
        if is_quota(rate):
            limits[key] = _whole_quota(shards, key, rate, now_ms)
            continue
        level = sum(level_milli(state, now_ms) for state in states)
        consumed = sum(state.consumed_milli for state in states)
        limits[key] = LimitState(level - accrued_since_epoch(rate, now_ms), rate, consumed)
    hour = max(image.hour for image in images)
    whole = CombinedImage(
        limits,
        max(image.config_version for image in images),
        None,
        hour,
        sum(image.admitted for image in images),
        0,
        sum(image.writes for image in images),
        None,
        total(image.tally for image in images if image.hour == hour),
        holds,
        paused_until_ms(images),
        next((image.life for shard, image in shards.items() if shard.number == 0), ""),
    )
    whole.shards = shards
    return whole


def _whole_quota(
    shards: Mapping[Shard, BucketImage], key: str, rate: Rate, now_ms: int
) -> LimitState:
    """Return a quota, of which the first shard has all; the others only count usage."""
    consumed = sum(
        each.limits[key].consumed_milli for each in shards.values() if key in each.limits
    )
    for shard, image in shards.items():
        if shard.number == 0 and key in image.limits:
            return replace(image.limits[key], rate=rate, consumed_milli=consumed)
    return replace(full_quota(rate, now_ms), consumed_milli=consumed)


def paused_until_ms(images: Iterable[BucketImage]) -> int | None:
    """Return the end of a bucket's pause, which is the latest end among its shards."""
    moments = [image.paused_until_ms for image in images if image.paused_until_ms is not None]
    return max(moments, default=None)


def _all_holds(images: Iterable[BucketImage]) -> dict[str, dict[int, int]]:
    """Add up the held slots, by stored name and moment of expiry."""
    sums: dict[str, dict[int, int]] = {}
    for image in images:
        for key, held in (image.holds or {}).items():
            sums_of_key = sums.setdefault(key, {})
            for moment, count in held.items():
                sums_of_key[moment] = sums_of_key.get(moment, 0) + count
    return sums


def fit_at_ms(
    images: Sequence[BucketImage], amounts_milli: Mapping[str, int], now_ms: int
) -> dict[str, int | None]:
    """Return the moment at which each limit admits its amount; None if the amount never fits.

    For the last of these limits, the moment is the one at which all limits admit their amounts. It
    may be later: with shards in debt, one shard may hold enough of one limit, and another shard
    enough of the other limit.
    """
    moments: dict[str, int | None] = {}
    for key, amount in amounts_milli.items():
        moments[key] = fits_at_ms([image.limits[key] for image in images], amount, now_ms)
    split = {
        key: amount
        for key, amount in amounts_milli.items()
        if all(image.limits[key].quota is None for image in images)
    }
    finite = {key: moment for key in split if (moment := moments[key]) is not None}
    if len(finite) == len(split) > 1:
        last = max(finite, key=lambda key: finite[key])
        moments[last] = max(finite[last], _all_fit_at_ms(images, split, now_ms))
    return moments


def _all_fit_at_ms(
    images: Sequence[BucketImage], amounts_milli: Mapping[str, int], now_ms: int
) -> int:
    """Return the first moment at which one shard holds all amounts, or all shards together do."""
    moments = [
        max(
            _reach_together_ms([image.limits[key] for image in images], amount, now_ms)
            for key, amount in amounts_milli.items()
        )
    ]
    for image in images:
        wanted = [(image.limits[key], amount) for key, amount in amounts_milli.items()]
        if all(fits_into(state, amount) for state, amount in wanted):
            moments.append(max(reaches_ms(state, amount) for state, amount in wanted))
    return max(now_ms, min(moments))


def fits_at_ms(states: Sequence[LimitState], amount_milli: int, now_ms: int) -> int | None:
    """Return the moment at which one shard, or all together, hold an amount; None if never.

    ``states`` are the states of one limit in all shards. Charges that are made meanwhile delay that
    moment.
    """
    if any(state.quota is not None for state in states):
        first = max(states, key=lambda state: state.rate.capacity_milli)
        return quota_fits_at_ms(first, amount_milli, now_ms)
    shares = [state.rate.capacity_milli for state in states]
    if amount_milli > sum(shares):
        return None
    alone = [reaches_ms(state, amount_milli) for state in states if fits_into(state, amount_milli)]
    return max(now_ms, min([*alone, _reach_together_ms(states, amount_milli, now_ms)]))


def fits_into(state: LimitState, amount_milli: int) -> bool:
    """Tell whether the amount is at most the capacity of a shard."""
    return amount_milli <= state.rate.capacity_milli


def _reach_together_ms(states: Sequence[LimitState], amount_milli: int, now_ms: int) -> int:
    """Find the first moment at which the levels add up to the amount, by bisection."""

    def enough(moment_ms: int) -> bool:
        return sum(level_milli(state, moment_ms) for state in states) >= amount_milli

    early = now_ms
    late = max(now_ms, *(reaches_ms(state, state.rate.capacity_milli) for state in states))
    while early < late:
        middle = (early + late) // 2
        if enough(middle):
            late = middle
        else:
            early = middle + 1
    return early
