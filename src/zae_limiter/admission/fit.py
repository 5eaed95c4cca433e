"""The one answer to the question whether a charge fits into a bucket by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zae_limiter.admission.image import BucketImage, is_paused
from zae_limiter.admission.moves import room_milli
from zae_limiter.admission.request import BucketChange
from zae_limiter.admission.reservation import advance_milli
from zae_limiter.admission.slots import swept


def fits(
    image: BucketImage,
    amounts_milli: Mapping[str, int],
    now_ms: int,
    until_ms: int | None = None,
) -> bool:
    """Tell whether every limit of a bucket holds its amount; never during a pause.

    An amount of 0 requires a level of at least 0: until a debt is repaid, it stops every call, also
    calls that do not name the limit. Slots that have expired count as free. A soft limit holds
    every amount. With ``until_ms`` the charge is a reservation: tokens that accrue until then
    count, too.
    """
    if is_paused(image, now_ms):
        return False
    if image.holds:
        image = swept(image, now_ms)
    limits = image.limits
    for key, amount in amounts_milli.items():
        state = limits[key]
        room = room_milli(state, now_ms)
        if until_ms is not None:
            room += advance_milli(state.rate, amount, now_ms, until_ms)
        if room < amount:
            return False
    return True


def admits(image: BucketImage, change: BucketChange, now_ms: int, *, at_once: bool = False) -> bool:
    """Tell whether a charge fits if no other change is written with it.

    Only a pause stops a charge that is taken whether or not it fits. ``at_once`` asks whether the
    tokens of a reservation are there already.
    """
    if not change.must_fit:
        return not is_paused(image, now_ms)
    until_ms = None if at_once else change.until_ms
    return fits(image, change.amounts_milli, now_ms, until_ms)


def has_no_debt(image: BucketImage, keys: Iterable[str], now_ms: int) -> bool:
    """Tell whether every limit has a level of at least 0; soft limits are not checked.

    On the bucket after a charge in shadow mode, the result says whether that charge did fit.
    """
    return fits(image, dict.fromkeys(keys, 0), now_ms)
