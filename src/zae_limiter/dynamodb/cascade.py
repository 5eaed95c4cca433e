"""Several buckets in one request, where each is a write of its own."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.admission.charge import statuses
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move, after
from zae_limiter.admission.request import (
    Charge,
    ChargeOutcome,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.shards.combined import CombinedImage, combine
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.admission.slots import SlotHold
from zae_limiter.dynamodb.buckets.cache import BucketCache
from zae_limiter.dynamodb.buckets.pending import Applied, PendingChange, Rejected
from zae_limiter.dynamodb.sharding.known_shards import KnownShards, seems_to_fit
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.models.timestamps import MILLI


def doubtful_first(
    charges: Sequence[PendingChange], cache: BucketCache, now_ms: int
) -> list[PendingChange] | None:
    """Order charges by doubt, those that seem not to fit first; None if all seem to fit.

    A bucket that will probably reject is asked alone, so that the other is not charged in vain.
    """
    fits = [seems_to_fit(cache, each.bucket_id, each.change, now_ms) for each in charges]
    if all(fits):
        return None
    return [
        charge for _, charge in sorted(zip(fits, charges, strict=True), key=lambda pair: pair[0])
    ]


def compensation(charge: Charge, holds: tuple[SlotHold, ...] = ()) -> Settlement:
    """Return the credits that undo a charge, and the slots that it gives back."""
    slot_keys = charge.in_force.slot_keys
    amounts = {
        key: -amount
        for key, amount in charge.amounts_milli.items()
        if amount and key not in slot_keys
    }
    return Settlement(
        charge.entity_id,
        charge.resource,
        charge.in_force,
        amounts,
        charge.through_child,
        released=holds,
    )


def holds_of(charge: Charge, outcome: Applied) -> tuple[SlotHold, ...]:
    """Return the slots that an applied charge holds."""
    if outcome.moments is None:
        return ()
    return tuple(
        [
            SlotHold(key, charge.amounts_milli[key] // MILLI, moment, outcome.life)
            for key, moment in zip(charge.in_force.slot_keys, outcome.moments, strict=True)
            if moment is not None
        ]
    )


def outcome_holds(
    charges: tuple[Charge, ...], pending: Sequence[PendingChange]
) -> tuple[tuple[SlotHold, ...], ...]:
    """Return the slots that charges hold which were all applied; empty if no limit has slots."""
    holds = []
    for charge, each in zip(charges, pending, strict=True):
        assert isinstance(each.outcome, Applied)
        holds.append(holds_of(charge, each.outcome))
    return tuple(holds) if any(holds) else ()


def outcome_without_grant(
    charges: Sequence[Charge], pending: Sequence[PendingChange], cache: BucketCache, now_ms: int
) -> ChargeOutcome:
    """Return the outcome of a request of which not every charge was applied; raise its error.

    Every limit in force is listed, as far as it is known without another call.
    """
    stale: StaleLimits | None = None
    for each in pending:
        outcome = each.outcome
        if isinstance(outcome, ZAELimiterError):
            raise outcome
        if isinstance(outcome, StaleLimits):
            stale = outcome if stale is None else max(stale, outcome)
    if stale is not None:
        return stale
    listed = []
    for charge, each in zip(charges, pending, strict=True):
        outcome = each.outcome
        if isinstance(outcome, Rejected):
            listed += statuses(charge, outcome.image, outcome.now_ms)
        else:
            listed += statuses(charge, _image_if_refunded(charge, each, cache, now_ms), now_ms)
    return Rejection(tuple(listed))


def image_of(charge: Charge, shards: KnownShards, now_ms: int) -> BucketImage:
    """Return a bucket as it was last seen, all its shards together; full if it was never seen."""
    in_force = charge.in_force
    images = shards.images(in_force, now_ms)
    if len(images) == 1:
        return images[WHOLE]
    return combine(images, dict(zip(in_force.keys, in_force.rates, strict=True)), now_ms)


def _image_if_refunded(
    charge: Charge, pending: PendingChange, cache: BucketCache, now_ms: int
) -> BucketImage:
    """Return a bucket that did not reject as it is once its charge is given back."""
    outcome = pending.outcome
    image = image_of(charge, KnownShards.of(cache, pending.bucket_id), now_ms)
    if isinstance(image, CombinedImage):
        return image
    if isinstance(outcome, Applied) and outcome.image is not None:
        # Its charge is given back by now.
        amounts = charge.amounts_milli.items()
        refund = [Move(key, None, None, amount, None, -amount) for key, amount in amounts]
        return after(outcome.image, refund)
    return image
