"""A bucket's shards seen as the one bucket that they are.

Images are those of shards at their own rates (``tree.of_shard``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    level_milli,
    reaches_ms,
)


def together(
    images: Collection[BucketImage], rates: Mapping[str, Rate], now_ms: int
) -> BucketImage:
    """The bucket as a whole at one moment; ``rates`` are those of the whole, by stored name.

    Levels, consumption and counts are the sums. Only at that moment: shards that fill up at
    different times together fill more slowly than one bucket.
    """
    limits = {}
    for key, rate in rates.items():
        states = [image.limits[key] for image in images if key in image.limits]
        level = sum(level_milli(state, now_ms) for state in states)
        consumed = sum(state.consumed_milli for state in states)
        limits[key] = LimitState(level - accrued_since_epoch(rate, now_ms), rate, consumed)
    return BucketImage(
        limits,
        max(image.config_version for image in images),
        None,
        0,
        sum(image.admitted for image in images),
        0,
        sum(image.writes for image in images),
    )


def fits_at_ms(states: Sequence[LimitState], amount_milli: int, now_ms: int) -> int | None:
    """From when on a charge can be made, if nobody else comes; None if never.

    ``states`` are one limit's in all shards. A charge that is gathered needs that much in all of
    them together, any other needs it in one.
    """
    shares = [state.rate.capacity_milli for state in states]
    if amount_milli > sum(shares):
        return None
    alone = [reaches_ms(state, amount_milli) for state in states if fits_into(state, amount_milli)]
    if 2 * amount_milli > max(shares):
        alone.append(_reach_together_ms(states, amount_milli, now_ms))
    return max(now_ms, min(alone))


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
