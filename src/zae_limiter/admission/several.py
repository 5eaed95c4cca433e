"""One acquire over several resources: one charge per bucket, in an order that all callers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.admission.account import sum_amounts
from zae_limiter.admission.in_force import InForce, plain_name
from zae_limiter.admission.quotas import NEVER_EXPIRES, QuotaHold
from zae_limiter.admission.request import AcquireEnd, Charge, Grant
from zae_limiter.admission.resolution import Scope
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import ConfigSource
from zae_limiter.models.limit import check_amounts
from zae_limiter.naming import check_entity_id, check_resource
from zae_limiter.refusal import limited_by

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus

MOST_RESOURCES = 4  # with the parents these are 8 buckets, so 8 writes on DynamoDB

Bucket = tuple[str, str]  # entity and resource


class Part(NamedTuple):
    """One resource of an acquire: its buckets, and the amounts of its limits.

    ``field`` is the name of the argument that holds the amounts, for errors.
    """

    scope: Scope
    amounts: Mapping[str, int]
    field: str


def wanted_amounts(
    first: Bucket, amounts: dict[str, Any], also: object
) -> dict[Bucket, dict[str, Any]]:
    """Return the amounts of every resource, the first one first; raise ValidationError.

    Amounts for a resource that is named twice, as ``"gpt-4"`` and as ``("key-1", "gpt-4")``, are
    added.
    """
    if not isinstance(also, Mapping):
        raise ValidationError("also", also, "must be a mapping of resources to amounts")
    wanted = {first: amounts}
    for named, consume in also.items():
        bucket = named_bucket(first[0], named)
        more = check_amounts(consume, field_of(first[0], *bucket))
        wanted[bucket] = sum_amounts([wanted.get(bucket, {}), more])
    if len(wanted) > MOST_RESOURCES:
        reason = f"at most {MOST_RESOURCES - 1} further resources"
        raise ValidationError("also", list(also), reason)
    return wanted


def named_bucket(entity_id: str, named: object, field: str = "also") -> Bucket:
    """Return the entity and the resource that a name, or a pair of both, stands for."""
    if isinstance(named, str):
        return entity_id, check_resource(named, field)
    if not isinstance(named, tuple) or len(named) != 2:
        raise ValidationError(field, named, "must be a resource, or a pair (entity_id, resource)")
    return check_entity_id(named[0], field), check_resource(named[1], field)


def field_of(own_entity_id: str, entity_id: str, resource: str) -> str:
    """Return the name of the argument that holds the amounts of a further resource, for errors."""
    return f"also.{resource}" if entity_id == own_entity_id else f"also.{entity_id}/{resource}"


@dataclass(frozen=True, slots=True)
class JointCharge:
    """The charges of all resources of one acquire.

    ``merged`` has one charge per bucket, in the order of keys. If two callers took scarce tokens in
    different orders, each could hold the tokens that the other one lacks, and neither would be
    admitted.
    """

    scopes: tuple[Scope, ...]
    of_parts: tuple[tuple[Charge, ...], ...]  # of each resource, as if it were acquired alone
    merged: tuple[Charge, ...]

    @classmethod
    def of(cls, parts: Sequence[Part], now_ms: int) -> JointCharge:
        """Return the charges of all parts; each has the mode of its bucket at ``now_ms``."""
        agreed = _agreeing([part.scope for part in parts])
        of_parts = tuple(
            [
                scope.charges(part.amounts, now_ms, part.field)
                for scope, part in zip(agreed, parts, strict=True)
            ]
        )
        by_bucket: dict[Bucket, list[Charge]] = {}
        for charges in of_parts:
            for charge in charges:
                by_bucket.setdefault(_bucket_of(charge), []).append(charge)
        merged = [_merged(by_bucket[bucket]) for bucket in sorted(by_bucket)]
        asking = _bucket_of(of_parts[0][0])
        for charge in merged:
            charge.counts_elsewhere = _bucket_of(charge) != asking
        return cls(agreed, of_parts, tuple(merged))

    def grants(self, grant: Grant) -> list[Grant]:
        """Divide the grant of the merged charges into one grant for each resource.

        A bucket that several resources share has taken its slots once, for the first of them.
        """
        positions = {_bucket_of(charge): at for at, charge in enumerate(grant.charges)}
        slots = [*grant.holds]
        grants = []
        for charges in self.of_parts:
            part = Grant(charges)
            at = [positions[_bucket_of(charge)] for charge in charges]
            part.images = [grant.images[position] for position in at]
            if any(slots[position] for position in at if slots):
                part.holds = tuple([slots[position] for position in at])
                for position in at:
                    slots[position] = ()
            if grant.quota_holds:
                holds = [grant.quota_holds[position] for position in at]
                if any(holds):
                    part.quota_holds = tuple(map(_shares, charges, holds))
            if grant.would_reject:
                part.would_reject = any(charge.is_debt for charge in charges)
            grants.append(part)
        return grants

    def in_named_order(self, statuses: Sequence[LimitStatus]) -> tuple[LimitStatus, ...]:
        """Return the statuses of a rejection in the order in which the caller named resources."""
        named = [_bucket_of(charge) for charges in self.of_parts for charge in charges]
        by_name = sorted(statuses, key=lambda each: named.index((each.entity_id, each.resource)))
        return tuple(by_name)


def ends_of(
    scopes: Sequence[Scope],
    rejected: Sequence[LimitStatus],
    has_waited: bool,
    clock: Callable[[], int],
    is_shadowed: bool,
) -> list[AcquireEnd]:
    """Return how an acquire ended for each resource that counts it.

    That is the first one, and every other one that held too few tokens. The first one stores what
    refused the acquire, on whichever resource.
    """
    first, *further = scopes
    ends = [AcquireEnd(first.resource, first.buckets, (), has_waited, clock, is_shadowed)]
    if is_shadowed:
        return ends
    ends[0] = ends[0]._replace(statuses=_on(first, rejected), refused_by=limited_by(rejected))
    for scope in further:
        listed = _on(scope, rejected)
        if any(each.exceeded for each in listed):
            ended = AcquireEnd(scope.resource, scope.buckets, listed, False, clock)
            ends.append(ended._replace(is_further=True))
    return ends


def _on(scope: Scope, rejected: Sequence[LimitStatus]) -> list[LimitStatus]:
    """Return the statuses of the buckets of one resource."""
    entity_ids = [entity_id for entity_id, _ in scope.buckets]
    return [
        each
        for each in rejected
        if each.resource == scope.resource and each.entity_id in entity_ids
    ]


def _agreeing(scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    """Return the scopes with one set of limits per bucket.

    Two of them may disagree about a bucket that they share: limits may have changed while they were
    read, and limits of the call concern the first resource alone.
    """
    chosen: dict[Bucket, InForce] = {}
    for scope in scopes:
        for entity_id, in_force in scope.buckets:
            bucket = (entity_id, scope.resource)
            known = chosen.get(bucket)
            if known is None or _strength(in_force) > _strength(known):
                chosen[bucket] = in_force
    agreed = []
    for scope in scopes:
        resource = scope.resource
        if any(chosen[entity_id, resource] is not each for entity_id, each in scope.buckets):
            buckets = [(entity_id, chosen[entity_id, resource]) for entity_id, _ in scope.buckets]
            agreed.append(Scope(resource, tuple(buckets), scope.switches))
        else:
            agreed.append(scope)
    return tuple(agreed)


def _strength(in_force: InForce) -> tuple[bool, int]:
    return in_force.source is ConfigSource.OVERRIDE, in_force.version


def _merged(charges: Sequence[Charge]) -> Charge:
    """Return one charge for a bucket: amounts are added; a slot is taken once for all.

    One acquire is one call in flight, however many of its resources lead to the bucket.
    """
    first = charges[0]
    if len(charges) == 1:
        return first
    amounts: dict[str, int] = {}
    through: dict[str, int] = {}
    for key in first.amounts_milli:
        taken = [each.amounts_milli[key] for each in charges]
        amounts[key] = max(taken) if key in first.in_force.slot_keys else sum(taken)
        through[key] = sum(
            [each.amounts_milli[key] for each in charges if plain_name(key) in each.through_child]
        )
    return Charge(
        entity_id=first.entity_id,
        resource=first.resource,
        in_force=first.in_force,
        amounts_milli=amounts,
        through_child=frozenset().union(*[each.through_child for each in charges]),
        through_milli=through,
        switch=first.switch,
    )


def _shares(charge: Charge, holds: tuple[QuotaHold, ...]) -> tuple[QuotaHold, ...]:
    """Return the part of a bucket's holds that belongs to one charge.

    A store keeps one sum for all holds of an expiry, so a hold can be settled in parts. What comes
    through a child is held apart. The share of a charge without an amount is 0, but it names the
    window to which later debts belong.
    """
    shares: dict[str, QuotaHold] = {}
    for hold in holds:
        units, is_of_child = charge.amounts_milli[hold.key], charge.of_child(hold.key).is_counted
        if units and hold.through_child != is_of_child:
            continue  # it is held for another one of the charges
        expires_s = hold.expires_s if units else NEVER_EXPIRES
        shares[hold.key] = hold._replace(
            units=units, expires_s=expires_s, through_child=is_of_child
        )
    return tuple(shares.values())


def _bucket_of(charge: Charge) -> Bucket:
    return charge.entity_id, charge.resource
