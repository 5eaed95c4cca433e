"""Several buckets in one request, where each is a write of its own."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.admission.charge import statuses
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move
from zae_limiter.admission.request import (
    Charge,
    ChargeOutcome,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.shards.combined import combine
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.dynamodb.buckets.cache import BucketCache
from zae_limiter.dynamodb.buckets.expiry import after
from zae_limiter.dynamodb.buckets.pending import Applied, PendingChange, Rejected
from zae_limiter.dynamodb.sharding.known_shards import KnownShards, seems_to_fit
from zae_limiter.exceptions import ZAELimiterError


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


def compensation(charge: Charge) -> Settlement:
    """Return the credits that undo a charge."""
    amounts = {key: -amount for key, amount in charge.amounts_milli.items() if amount}
    return Settlement(
        charge.entity_id, charge.resource, charge.in_force, amounts, charge.through_child
    )


def outcome_without_grant(
    charges: Sequence[Charge], pending: Sequence[PendingChange], cache: BucketCache, now_ms: int
) -> ChargeOutcome:
    """Return the outcome of a request of which not every charge was applied; raise its error.

    Every limit in force is listed, as far as it is known without another call.
    """
    outcomes = [each.outcome for each in pending]
    for outcome in outcomes:
        if isinstance(outcome, ZAELimiterError):
            raise outcome
    stale = [outcome for outcome in outcomes if isinstance(outcome, StaleLimits)]
    if stale:
        return max(stale)
    listed = []
    for charge, each in zip(charges, pending, strict=True):
        outcome = each.outcome
        if isinstance(outcome, Rejected):
            listed += statuses(charge, outcome.image, outcome.now_ms)
        else:
            listed += statuses(charge, _image_of(charge, each, cache, now_ms), now_ms)
    return Rejection(tuple(listed))


def _image_of(
    charge: Charge, pending: PendingChange, cache: BucketCache, now_ms: int
) -> BucketImage:
    """Return a bucket that did not reject as it was last seen; full if it was never seen."""
    in_force = charge.in_force
    images = KnownShards.of(cache, pending.bucket_id).images(in_force, now_ms)
    if len(images) > 1:
        rates = dict(zip(in_force.keys, in_force.rates, strict=True))
        return combine(images, rates, now_ms)
    outcome = pending.outcome
    if isinstance(outcome, Applied) and outcome.image is not None:
        # Its charge is given back by now.
        amounts = compensation(charge).amounts_milli.items()
        refund = [Move(key, None, None, -amount, None, amount) for key, amount in amounts]
        return after(outcome.image, refund)
    return images[WHOLE]
