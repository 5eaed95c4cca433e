"""The answers to requests of charges: grants and refusals, put together from outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zae_limiter.admission.fit import has_no_debt
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import added_move, after
from zae_limiter.admission.request import (
    Charge,
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.shards.combined import CombinedImage
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.admission.statuses import statuses, with_one_wait
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.outcomes import Applied, Outcome, Rejected
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.sharding.known_shards import KnownShards, combined
from zae_limiter.items.stored.keys import BucketId

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus


def grant(
    request: ChargeRequest,
    pending: Sequence[PendingChange],
    outcomes: Sequence[Applied],
    cache: BucketCache,
) -> Grant:
    """Return the grant of a request whose charges were all applied."""
    images: list[BucketImage | Callable[[], BucketImage]] = []
    granted = Grant(request.charges, images, outcomes[0].reservation)
    for charge, each, applied in zip(request.charges, pending, outcomes, strict=True):
        image: BucketImage | Callable[[], BucketImage] | None = applied.image
        if image is None or not applied.is_whole:
            image = _combined_later(charge, request, KnownShards.of(cache, each.bucket_id))
        images.append(image)
        if applied.slots:
            granted.holds = tuple([of_charge.slots for of_charge in outcomes])
        if applied.quota_holds:
            granted.quota_holds = tuple([of_charge.quota_holds for of_charge in outcomes])
        if charge.switch is not None and charge.is_debt:
            is_overdrawn = applied.is_overdrawn
            if callable(image):  # several shards, which share a debt
                is_overdrawn = not has_no_debt(image(), charge.amounts_milli, request.clock())
            granted.would_reject = granted.would_reject or is_overdrawn
    return granted


def refund_of(charge: Charge, applied: Applied, admitted: int) -> tuple[Settlement, ...]:
    """Return what undoes an applied charge that was counted as so many admitted acquires."""
    held = Grant((charge,), holds=(applied.slots,), quota_holds=(applied.quota_holds,))
    return held.undo(admitted)


def refusal(
    request: ChargeRequest,
    pending: Sequence[PendingChange],
    outcomes: Sequence[Outcome | None],
    cache: BucketCache,
) -> ChargeOutcome:
    """Return the answer to a request that is not granted, or raise its error.

    The outcome of a bucket that was not asked is None. Charges that were applied have been refunded
    by now. Every limit in force is listed, as far as it is known without another call.
    """
    for outcome in outcomes:
        if isinstance(outcome, ZAELimiterError):
            raise outcome
    stale = [outcome for outcome in outcomes if isinstance(outcome, StaleLimits)]
    if stale:
        return max(stale)
    now_ms = request.clock()
    listed: list[LimitStatus] = []
    for charge, each, outcome in zip(request.charges, pending, outcomes, strict=True):
        if isinstance(outcome, Rejected):
            listed += statuses(charge, outcome.image, outcome.now_ms)
        else:
            image = _image_if_refunded(charge, outcome, each.bucket_id, cache, now_ms)
            listed += statuses(charge, image, now_ms)
    return Rejection(tuple(with_one_wait(listed, now_ms)))


def _combined_later(
    charge: Charge, request: ChargeRequest, shards: KnownShards
) -> Callable[[], BucketImage]:
    """Return a function that combines the shards of a bucket, as they are known now."""
    return lambda: _image_of(charge, shards, request.clock())


def _image_of(charge: Charge, shards: KnownShards, now_ms: int) -> BucketImage:
    """Return a bucket as it was last seen, all its shards together; full if it was never seen."""
    in_force = charge.in_force
    images = shards.images(in_force, now_ms)
    if len(images) == 1:
        return images[WHOLE]
    return combined(images, in_force, now_ms)


def _image_if_refunded(
    charge: Charge, outcome: Outcome | None, bucket_id: BucketId, cache: BucketCache, now_ms: int
) -> BucketImage:
    """Return a bucket that did not reject as it is after the refund of its charge."""
    image = _image_of(charge, KnownShards.of(cache, bucket_id), now_ms)
    if isinstance(image, CombinedImage):
        return image
    if isinstance(outcome, Applied) and outcome.image is not None and not charge.forfeits:
        refund = [added_move(key, amount) for key, amount in charge.amounts_milli.items()]
        return after(outcome.image, refund)
    return image
