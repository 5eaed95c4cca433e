"""A bucket's shards seen as the one bucket that they are.

Images are those of shards at their own rates (``tree.of_shard``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    level_milli,
    reaches_ms,
)
from zae_limiter.admission.shards.tree import Shard


class SplitImage(BucketImage):
    """A bucket that has been split; ``shards`` are its parts.

    What is made of it by replacing something has no parts.
    """

    shards: Mapping[Shard, BucketImage] = {}


def together(
    shards: Mapping[Shard, BucketImage], rates: Mapping[str, Rate], now_ms: int
) -> SplitImage:
    """The bucket as a whole at one moment; ``rates`` are those of the whole, by stored name.

    Levels, consumption and counts are the sums. Only at that moment: shards that fill up at
    different times together fill more slowly than one bucket.
    """
    limits, images = {}, shards.values()
    for key, rate in rates.items():
        states = [image.limits[key] for image in images if key in image.limits]
        level = sum(level_milli(state, now_ms) for state in states)
        consumed = sum(state.consumed_milli for state in states)
        limits[key] = LimitState(level - accrued_since_epoch(rate, now_ms), rate, consumed)
    whole = SplitImage(
        limits,
        max(image.config_version for image in images),
        None,
        max(image.window_hour for image in images),
        sum(image.admitted for image in images),
        0,
        sum(image.writes for image in images),
    )
    whole.shards = shards
    return whole


def fit_at_ms(
    images: Sequence[BucketImage], amounts_milli: Mapping[str, int], now_ms: int
) -> dict[str, int | None]:
    """From when on each limit lets a charge be made; the last one when all of them do.

    Where shards are in debt, one may hold enough of one limit and another of the other.
    """
    found: dict[str, int | None] = {}
    for key, amount in amounts_milli.items():
        found[key] = fits_at_ms([image.limits[key] for image in images], amount, now_ms)
    known = {key: moment for key, moment in found.items() if moment is not None}
    if len(known) == len(found) > 1:
        last = max(known, key=lambda key: known[key])
        found[last] = max(known[last], _all_fit_at_ms(images, amounts_milli, now_ms))
    return found


def _all_fit_at_ms(
    images: Sequence[BucketImage], amounts_milli: Mapping[str, int], now_ms: int
) -> int:
    """The first moment at which one shard holds all amounts, or all together hold each."""
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
    """From when on a charge can be gathered or made in one shard; None if never.

    ``states`` are one limit's in all shards. If nobody else comes.
    """
    shares = [state.rate.capacity_milli for state in states]
    if amount_milli > sum(shares):
        return None
    alone = [reaches_ms(state, amount_milli) for state in states if fits_into(state, amount_milli)]
    return max(now_ms, min([*alone, _reach_together_ms(states, amount_milli, now_ms)]))


def fits_into(state: LimitState, amount_milli: int) -> bool:
    """Whether a shard can ever hold that much by itself."""
    return amount_milli <= state.rate.capacity_milli


def _reach_together_ms(states: Sequence[LimitState], amount_milli: int, now_ms: int) -> int:
    """The first moment at which the levels add up to that, by halving the time in question."""

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
