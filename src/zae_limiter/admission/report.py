"""Buckets as users see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zae_limiter.admission.image import (
    HOUR_MS,
    BucketImage,
    LimitState,
    Rate,
    level_milli,
    reaches_ms,
    running_pause_ms,
)
from zae_limiter.admission.in_force import InForce, is_alias, plain_name
from zae_limiter.admission.quota_status import window_fields
from zae_limiter.admission.quotas import (
    NEVER_EXPIRES,
    QuotaHold,
    current_window,
    fits_at_ms,
    shifted_level,
)
from zae_limiter.admission.rate_text import limit_of
from zae_limiter.admission.request import Charge, Grant
from zae_limiter.admission.slots import retry_after_s, swept
from zae_limiter.admission.statuses import under_limits
from zae_limiter.admission.switches import after_switch
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.admission.thresholds import raised_percent
from zae_limiter.admission.usage import currency_of, without_holds
from zae_limiter.admission.windows import NO_WINDOW, balance_in, has_expired, level_in, window_of
from zae_limiter.models.bucket import BucketState, EntityCapacity, ResourceCapacity
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus
from zae_limiter.models.timestamps import MILLI
from zae_limiter.naming import usage_name

if TYPE_CHECKING:
    from decimal import Decimal


def bucket_states(
    entity_id: str, resource: str, image: BucketImage, now_ms: int
) -> list[BucketState]:
    """Return one state per limit, with its level at ``now_ms``.

    Limits that calls brought beside configured ones come last.
    """
    if image.holds:
        image = swept(image, now_ms)
    tally = image.tally if image.hour == now_ms // HOUR_MS else NO_TALLY
    refusal: dict[str, Any] = {}
    if tally.refusals is not None:
        limited_by = tally.refusals.with_names(entity_id, resource).latest
        refusal = {"limited_by": limited_by, "limited_at_ms": tally.refusals.at_s * 1000}
    image, states = without_holds(image, now_ms), []
    for key, state in sorted(image.limits.items(), key=lambda stored: is_alias(stored[0])):
        name = plain_name(key)
        fields: dict[str, Any] = dict(refusal)
        if state.rate.terms is not None:
            limit = limit_of(name, state.rate)
            fields |= {"terms": limit, **window_fields(limit, state, now_ms)}
            fields["raised"] = raised_percent(state, now_ms)
        states.append(
            BucketState(
                entity_id,
                resource,
                name,
                level_milli(state, now_ms),
                now_ms,
                state.rate.capacity_milli,
                state.rate.refill_milli,
                state.rate.period_ms,
                state.consumed_milli,
                tally.rejected,
                running_pause_ms(image, now_ms),
                _asked(tally, name, state.rate),
                _first_expiry_ms(image, key, now_ms),
                **fields,
            )
        )
    return states


def shown_under_limits(image: BucketImage | None, in_force: InForce, now_ms: int) -> BucketImage:
    """Return a bucket whose own limits are those in force; an absent bucket is full.

    Limits that the next charge adds or drops are left as they are: nothing was charged on the ones,
    and the others show what was.
    """
    changed = under_limits(image, in_force, now_ms)
    if image is None:
        return changed
    limits = {key: changed.limits.get(key, state) for key, state in image.limits.items()}
    return image._replace(limits=limits)


def _asked(tally: Tally, name: str, rate: Rate) -> int | Decimal:
    """Return the largest rejected amount as users write it."""
    currency = currency_of(rate)
    units = tally.asked.get(usage_name(name, currency), 0)
    return units if currency is None or not units else limit_of(name, rate).shown(units)


def _first_expiry_ms(image: BucketImage, key: str, now_ms: int) -> int | None:
    """Return the first expiry of the slots, or of the amounts of a quota, that calls hold."""
    slots = (image.holds or {}).get(key, {})
    moments = [moment for moment, held in slots.items() if held]
    state = image.limits[key]
    if state.quota is not None and state.quota.holds:
        number = current_window(state, now_ms)
        moments += [
            expires_s * 1000
            for (window, expires_s, _), units in state.quota.holds.items()
            if units and window == number and expires_s and not has_expired(expires_s, now_ms)
        ]
    return min(moments, default=None)


def counted_state(
    entity_id: str, resource: str, image: BucketImage, limit_name: str, now_ms: int
) -> BucketState | None:
    """Return the state that a bucket contributes to the capacity of its resource.

    This is the state of the configured limit. If the configured limit was never used there, it is
    the state of the largest limit of that name that calls brought. None if there is no such limit.
    """
    states = [
        state
        for state in bucket_states(entity_id, resource, image, now_ms)
        if state.limit_name == limit_name
    ]
    if limit_name in image.limits:
        return states[0]
    return max(states, key=lambda state: state.capacity_milli, default=None)


def statuses_after(
    grant: Grant,
    since: Mapping[str, int],
    held_since: Mapping[str, int],
    cost: Mapping[str, int],
    now_ms: int,
) -> list[LimitStatus]:
    """Return the remaining tokens of every limit, from the store's answer to a charge.

    Tokens that have accrued since the answer are included. ``since`` are the tokens that the lease
    has taken (negative: given back) after this charge, ``held_since`` those of quotas that it holds
    in addition, and ``cost`` is the cost of the whole lease. A limit in debt is exceeded: no call
    is admitted until the debt is repaid.
    """
    statuses: list[LimitStatus] = []
    for charge, answered in zip(grant.charges, grant.images, strict=False):
        first = len(statuses)
        image = answered if isinstance(answered, BucketImage) else answered()
        if image.holds:
            image = swept(image, now_ms)
        for limit, key in zip(charge.in_force.limits, charge.in_force.keys, strict=True):
            unit = MILLI if limit.currency is None else 1
            state, taken_milli = image.limits[key], since.get(limit.name, 0) * unit
            if charge.forfeits:
                taken_milli = 0  # the block changes usage only
            left = state
            if taken_milli:
                left = taken_from(state, taken_milli)
            level, requested = level_milli(left, now_ms), cost.get(limit.name, 0)
            if limit.is_concurrent:  # slots are held and are no part of the cost
                requested = charge.amounts_milli[key] // MILLI
            if state.rate.terms is not None:
                if left.quota is not None:
                    more = held_since.get(limit.name, 0) * unit
                    hold = _hold_of(grant, charge, key)
                    left = _with_holds_of_lease(left, hold, more)
                    if taken_milli > 0 and hold is not None and hold.window == NO_WINDOW:
                        left = _with_first_use(left, taken_milli, now_ms)
                statuses.append(_status_under_terms(charge, limit, left, requested * unit, now_ms))
                continue
            if limit.is_concurrent:
                retry_after = retry_after_s(image, key, 0, now_ms)
            else:
                retry_after = max(0, reaches_ms(left, 0) - now_ms) / 1000
            statuses.append(
                LimitStatus(
                    entity_id=charge.entity_id,
                    resource=charge.resource,
                    limit_name=limit.name,
                    limit=limit,
                    available=level // MILLI,
                    requested=requested,
                    exceeded=level < 0,
                    retry_after_seconds=retry_after,
                )
            )
        if charge.switch is not None:
            switch = charge.switch
            statuses[first:] = [after_switch(each, switch) for each in statuses[first:]]
    return statuses


def _hold_of(grant: Grant, charge: Charge, key: str) -> QuotaHold | None:
    """Return what a charge holds of a quota by its stored name; None if the charge was bypassed."""
    for each, holds in zip(grant.charges, grant.quota_holds, strict=False):
        for hold in holds if each is charge else ():
            if hold.key == key:
                return hold
    return None


def _with_holds_of_lease(state: LimitState, hold: QuotaHold | None, more: int) -> LimitState:
    """Return a quota with what a lease holds now: its hold is renewed, and has grown by ``more``.

    So the hold does not expire here, however old the answer is that shows it.
    """
    if hold is None or state.quota is None or not (hold.units or more):
        return state
    holds, units = dict(state.quota.holds), min(hold.units, state.quota.holds.get(hold.name, 0))
    renewed = hold._replace(expires_s=NEVER_EXPIRES).name
    holds[hold.name] = holds.get(hold.name, 0) - units
    holds[renewed] = holds.get(renewed, 0) + units + more
    return replace(state, quota=state.quota._replace(holds=holds))


def taken_from(state: LimitState, units: int) -> LimitState:
    """Return a limit from which an amount was taken; a quota stays in its window."""
    if state.quota is None:
        return replace(state, balance_milli=state.balance_milli - units)
    number = window_of(state.balance_milli)
    level = shifted_level(level_in(number, state.balance_milli), -units)
    return replace(state, balance_milli=balance_in(number, level))


def _with_first_use(state: LimitState, units: int, now_ms: int) -> LimitState:
    """Return a quota whose first use is the cost of a lease that has not named it."""
    number = current_window(state, now_ms)
    return replace(state, balance_milli=balance_in(number, state.rate.capacity_milli - units))


def _status_under_terms(
    charge: Charge, limit: Limit, left: LimitState, cost: int, now_ms: int
) -> LimitStatus:
    """Return the status of a quota or a soft limit after a charge."""
    level, retry_after = level_milli(left, now_ms), 0.0
    exceeded = level < 0 and not limit.soft
    if exceeded and left.quota is not None:
        moment_ms = fits_at_ms(left, 0, now_ms)
        retry_after = max(0, (moment_ms or now_ms) - now_ms) / 1000
    elif exceeded:
        retry_after = max(0, reaches_ms(left, 0) - now_ms) / 1000
    return LimitStatus(
        entity_id=charge.entity_id,
        resource=charge.resource,
        limit_name=limit.name,
        limit=limit,
        available=limit.shown(level),
        requested=limit.shown(cost),
        exceeded=exceeded,
        retry_after_seconds=retry_after,
        overdrawn=level < 0,
        **window_fields(limit, left, now_ms),
    )


def resource_capacity(
    resource: str, limit_name: str, states: Iterable[BucketState]
) -> ResourceCapacity:
    """Sum one limit over entities."""
    entities = [
        EntityCapacity(s.entity_id, s.capacity, s.tokens, _used_pct(s.capacity, s.tokens))
        for s in states
    ]
    capacity = sum(entity.capacity for entity in entities)
    available = sum(entity.available for entity in entities)
    return ResourceCapacity(
        resource, limit_name, capacity, available, _used_pct(capacity, available), entities
    )


def _used_pct(capacity: int, available: int) -> float:
    return 100.0 * (capacity - available) / capacity if capacity else 0.0
