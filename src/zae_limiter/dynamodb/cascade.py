"""Several buckets in one request, where each is a write of its own."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.admission.charge import statuses
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.moves import Move
from zae_limiter.admission.request import (
    STALE,
    Charge,
    ChargeOutcome,
    Rejection,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.shards.outlook import together
from zae_limiter.admission.shards.tree import WHOLE
from zae_limiter.dynamodb.expiry import after
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Member, Refused, Written
from zae_limiter.dynamodb.sights import Sights, seems_to_fit
from zae_limiter.exceptions import ZAELimiterError


def in_order(members: Sequence[Member], known: Known, now_ms: int) -> list[Member] | None:
    """Those first that seem not to fit; None if all seem to fit.

    A bucket that refuses is asked alone, so that the other is not charged in vain.
    """
    fit = {id(member): seems_to_fit(known, member.place, member.part, now_ms) for member in members}
    if all(fit.values()):
        return None
    return sorted(members, key=lambda member: fit[id(member)])


def compensation(charge: Charge) -> Settlement:
    """What gives a charge back."""
    amounts = {
        key: -amount
        for key, amount in zip(charge.in_force.keys, charge.amounts_milli, strict=True)
        if amount
    }
    return Settlement(charge.entity_id, charge.resource, charge.in_force, amounts)


def refusal(
    charges: Sequence[Charge], members: Sequence[Member], known: Known, now_ms: int
) -> ChargeOutcome:
    """What the caller is told when not every bucket was charged; raises what went wrong.

    Every limit in force is listed, as far as it is known without another call.
    """
    for member in members:
        if isinstance(member.outcome, ZAELimiterError):
            raise member.outcome
    if any(isinstance(member.outcome, StaleLimits) for member in members):
        return STALE
    found = []
    for charge, member in zip(charges, members, strict=True):
        outcome = member.outcome
        if isinstance(outcome, Refused):
            found += statuses(charge, outcome.image, outcome.now_ms)
        else:
            found += statuses(charge, _seen(charge, member, known, now_ms), now_ms)
    return Rejection(tuple(found))


def _seen(charge: Charge, member: Member, known: Known, now_ms: int) -> BucketImage:
    """A bucket that was not asked is shown as it was last seen; one never seen is full."""
    in_force = charge.in_force
    images = Sights.of(known, member.place).images(in_force, now_ms)
    if len(images) > 1:
        rates = dict(zip(in_force.keys, in_force.rates, strict=True))
        return together(images, rates, now_ms)
    outcome = member.outcome
    if isinstance(outcome, Written) and outcome.image is not None:
        amounts = compensation(charge).amounts_milli.items()
        back = [Move(key, None, None, -amount, None, amount) for key, amount in amounts]
        return after(outcome.image, back)
    return images[WHOLE]
