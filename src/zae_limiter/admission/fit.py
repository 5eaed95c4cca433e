"""The one answer to the question whether a charge fits into a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zae_limiter.admission.image import BucketImage, is_paused, is_split, level_milli
from zae_limiter.admission.quotas import free_units
from zae_limiter.admission.reservation import advance_milli
from zae_limiter.admission.slots import swept

NO_AMOUNTS: Mapping[str, int] = {}


def fits(
    image: BucketImage,
    amounts_milli: Mapping[str, int],
    now_ms: int,
    until_ms: int | None = None,
    *,
    returned_milli: Mapping[str, int] = NO_AMOUNTS,
    taken_milli: Mapping[str, int] = NO_AMOUNTS,
) -> bool:
    """Tell whether every limit of a bucket holds its amount; never during a pause.

    An amount of 0 requires a level of at least 0: until a debt is repaid, it stops every call, also
    calls that do not name the limit. Slots that have expired count as free. A soft limit holds
    every amount.

    With ``until_ms`` the charge is a reservation: tokens that accrue until then count, too.
    ``returned_milli`` and ``taken_milli`` are the amounts of other changes that the same write
    applies before this charge.
    """
    if is_paused(image, now_ms):
        return False
    if image.holds:
        image = swept(image, now_ms)
    limits = image.limits
    for key, amount in amounts_milli.items():
        state = limits[key]
        if state.rate.terms is not None:
            if state.rate.terms.soft:
                if amount and not state.rate.capacity_milli and not is_split(state.rate):
                    return False  # the first shard of the bucket has all of a quota or of slots
                continue
            if state.quota is not None:
                free = free_units(state, now_ms)
                if free + returned_milli.get(key, 0) - taken_milli.get(key, 0) < amount:
                    return False
                continue
        returned = returned_milli.get(key, 0) if returned_milli else 0
        level = level_milli(state, now_ms, returned)
        if taken_milli:
            level -= taken_milli.get(key, 0)
        if until_ms is not None:
            level += advance_milli(state.rate, amount, now_ms, until_ms)
        if level < amount:
            return False
    return True


def has_no_debt(image: BucketImage, keys: Iterable[str], now_ms: int) -> bool:
    """Tell whether every limit has a level of at least 0; soft limits are not checked.

    On the bucket after a charge in shadow mode, the result says whether that charge did fit.
    """
    return fits(image, dict.fromkeys(keys, 0), now_ms)
