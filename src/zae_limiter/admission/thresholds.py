"""Thresholds of quotas: which are reached, which were raised, and the marks that remember them.

A threshold is a percentage of the amount. It is reached when so much is used or held. The mark of a
quota names the last threshold that was raised: ten times the number of its window, and the position
of the threshold, counted from 1. So a mark of an earlier window is lower than any of this one. The
client that moves the mark raises the event, and nobody else does.

A quota is exhausted when it rejects an acquire that a full one would admit. Estimates stop fitting
long before all is used, so this comes before the threshold of 100 %, in most windows without it. It
has a mark of its own, the number of the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.admission.image import BucketImage, LimitState, is_soft
from zae_limiter.admission.in_force import plain_name, stored_units
from zae_limiter.admission.quota_status import window_times
from zae_limiter.admission.quotas import current_window, quota_terms, topped_units
from zae_limiter.admission.rate_text import limit_of
from zae_limiter.admission.windows import (
    HALF_SPAN,
    MARKS,
    QuotaState,
    balance_in,
    level_in,
    trigger_level,
    window_of,
)

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter.admission.request import AcquireEnd
    from zae_limiter.models.limit import Limit


EXHAUSTED = 0  # the position of a mark that stands for no threshold


class Mark(NamedTuple):
    """The mark of one threshold, and the bounds of the balance within which it is reached.

    The position of an exhausted quota's mark is ``EXHAUSTED``.
    """

    key: str
    position: int
    value: int
    low: int
    high: int


class Crossing(NamedTuple):
    """A threshold that this client has marked. ``used`` includes the held amounts."""

    entity_id: str
    resource: str
    limit: Limit
    percent: int
    used: Any
    window_start: datetime | None
    window_end: datetime | None


class RejectingQuota(NamedTuple):
    """A quota, given by its stored name, that has rejected an acquire, and the units asked for."""

    entity_id: str
    resource: str
    key: str
    units: int


class Exhaustion(NamedTuple):
    """A quota that this client has marked as exhausted. ``used`` includes the held amounts."""

    entity_id: str
    resource: str
    limit: Limit
    requested: Any
    available: Any
    used: Any
    window_start: datetime | None
    window_end: datetime | None


OnThreshold = Callable[[Crossing], None]
OnExhausted = Callable[[Exhaustion], None]


def next_mark(key: str, state: LimitState) -> Mark | None:
    """Return the lowest threshold that is reached and was not raised; None if there is none."""
    if state.quota is None:
        return None
    terms, _ = quota_terms(state.rate)
    number = window_of(state.balance_milli)
    position = _last_position(state.quota, number) + 1
    if position > len(terms.thresholds):
        return None
    trigger = trigger_level(state.rate.capacity_milli, terms.thresholds[position - 1])
    if level_in(number, state.balance_milli) > trigger:
        return None
    return Mark(
        key,
        position,
        number * MARKS + position,
        balance_in(number, -HALF_SPAN) + 1,
        balance_in(number, trigger),
    )


def due_mark(image: BucketImage) -> Mark | None:
    """Return the next mark of a bucket; None if all reached thresholds were raised."""
    for key, state in image.limits.items():
        if state.quota is not None and (mark := next_mark(key, state)) is not None:
            return mark
    return None


def _last_position(quota: QuotaState, number: int) -> int:
    """Return the position of the last threshold that was raised in a window; 0 if none was.

    If the mark belongs to a later window, nothing is raised in this one any more.
    """
    if quota.marked is None or quota.marked // MARKS < number:
        return 0
    return MARKS if quota.marked // MARKS > number else quota.marked % MARKS


def raised_percent(state: LimitState, now_ms: int) -> int | None:
    """Return the highest percentage that was raised in the running window; None if none was."""
    if state.quota is None or state.quota.marked is None:
        return None
    number, position = divmod(state.quota.marked, MARKS)
    terms, _ = quota_terms(state.rate)
    if number != current_window(state, now_ms) or not 0 < position <= len(terms.thresholds):
        return None
    return terms.thresholds[position - 1]


def with_raised(
    entity_id: str, resource: str, image: BucketImage, now_ms: int
) -> tuple[BucketImage, list[Crossing]]:
    """Mark all reached thresholds; return the bucket, and the thresholds that are newly marked."""
    crossings = []
    while (mark := due_mark(image)) is not None:
        state = image.limits[mark.key]
        assert state.quota is not None, "only a quota has thresholds"
        marked = replace(state, quota=state.quota._replace(marked=mark.value))
        image = image._replace(limits={**image.limits, mark.key: marked})
        crossings.append(crossing(entity_id, resource, mark, marked, now_ms))
    return image, crossings


def crossing(entity_id: str, resource: str, mark: Mark, state: LimitState, now_ms: int) -> Crossing:
    """Describe a threshold that was just marked; ``state`` is the quota with that mark."""
    terms, window = quota_terms(state.rate)
    limit, number = limit_of(plain_name(mark.key), state.rate), mark.value // MARKS
    start, end = window_times(window, number, state, now_ms)
    percent = terms.thresholds[mark.position - 1]
    return Crossing(entity_id, resource, limit, percent, _used(state, limit, number), start, end)


def rejected_by(ended: AcquireEnd) -> list[RejectingQuota]:
    """Return the quotas that have rejected an acquire which they would admit if they were full.

    A pause and the mode ``deny`` reject as well, whatever the quotas hold.
    """
    found = []
    for entity_id, in_force in ended.buckets:
        if not in_force.quota_keys:
            continue
        keys = dict(zip(in_force.names, in_force.keys, strict=True))
        for status in ended.statuses:
            key = keys.get(status.limit_name)
            if status.entity_id != entity_id or key not in in_force.quota_keys:
                continue
            if status.exceeded and status.available < status.requested <= status.limit.amount:
                units = stored_units(status.requested, status.limit.currency is not None)
                found.append(RejectingQuota(entity_id, ended.resource, key, units))
    return found


def exhausted_mark(rejected: RejectingQuota, image: BucketImage, now_ms: int) -> Mark | None:
    """Return the mark of an exhausted quota; None if it was made, or the amount fits again."""
    state = image.limits.get(rejected.key)
    if state is None or state.quota is None or is_soft(state.rate):
        return None
    number, before = window_of(state.balance_milli), state.quota.exhausted
    if number < current_window(state, now_ms) or (before is not None and before >= number):
        return None
    high = rejected.units - 1
    if level_in(number, state.balance_milli) > high:
        return None
    low = balance_in(number, -HALF_SPAN) + 1
    return Mark(rejected.key, EXHAUSTED, number, low, balance_in(number, high))


def with_exhausted(
    rejected: RejectingQuota, image: BucketImage, now_ms: int
) -> tuple[BucketImage, Exhaustion] | None:
    """Mark an exhausted quota; None if it is marked already, or the amount fits again."""
    mark = exhausted_mark(rejected, image, now_ms)
    if mark is None:
        return None
    state = image.limits[mark.key]
    assert state.quota is not None, "only a quota has marks"
    marked = replace(state, quota=state.quota._replace(exhausted=mark.value))
    image = image._replace(limits={**image.limits, mark.key: marked})
    return image, exhaustion(rejected, mark, marked, now_ms)


def exhaustion(rejected: RejectingQuota, mark: Mark, state: LimitState, now_ms: int) -> Exhaustion:
    """Describe a quota that was just marked; ``state`` is the quota with that mark."""
    _, window = quota_terms(state.rate)
    limit, number = limit_of(plain_name(mark.key), state.rate), mark.value
    start, end = window_times(window, number, state, now_ms)
    return Exhaustion(
        rejected.entity_id,
        rejected.resource,
        limit,
        limit.shown(rejected.units),
        limit.shown(level_in(number, state.balance_milli)),
        _used(state, limit, number),
        start,
        end,
    )


def _used(state: LimitState, limit: Limit, number: int) -> Any:
    """Return the amount of a window that is used, with the held amounts, as users see it."""
    topped, level = topped_units(state, number), level_in(number, state.balance_milli)
    return limit.shown(state.rate.capacity_milli + topped - level)
