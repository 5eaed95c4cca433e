"""Operations on buckets: charge, settle, read, reset, top up and pause."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from zae_limiter.admission import refills
from zae_limiter.admission.decide import (
    Decision,
    after_plain_charge,
    decide,
    late_amounts,
    with_owed_limits,
)
from zae_limiter.admission.fit import fits
from zae_limiter.admission.image import HOUR_MS, BucketImage, running_pause_ms
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.quotas import in_life
from zae_limiter.admission.rebase import full_bucket, is_newer
from zae_limiter.admission.report import bucket_states, counted_state, resource_capacity
from zae_limiter.admission.request import (
    Charge,
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Renewal,
    RenewalOutcome,
    Settlement,
    StaleLimits,
)
from zae_limiter.admission.reservation import reserved
from zae_limiter.admission.slots import slots_in_life, swept
from zae_limiter.admission.statuses import prepared, statuses, under_limits, with_one_wait
from zae_limiter.admission.thresholds import (
    Crossing,
    Exhaustion,
    RejectingQuota,
    exhausted_mark,
    with_exhausted,
    with_raised,
)
from zae_limiter.admission.usage import HourUsage, late_usage, open_hour, roll, without_holds
from zae_limiter.embedded.history import record
from zae_limiter.embedded.tables import (
    BucketKey,
    BucketRow,
    Listing,
    Tables,
    UndecodedBucket,
    refuse_if_purging,
)
from zae_limiter.embedded.tallies import with_noted
from zae_limiter.models.audit import AuditAction, AuditedChange, pause_event
from zae_limiter.models.bucket import BucketEntry, BucketState, ResourceCapacity
from zae_limiter.models.limit import plain_amounts
from zae_limiter.tallies import TakenTallies

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus

T = TypeVar("T")

BATCH = 100  # buckets that are read by key in one transaction
LIFE_BYTES = 6  # a life must differ from other lives of the same key while their slots are held


class _Planned(NamedTuple):
    """What was decided about one charge. ``decision`` is None if it is plain, and fits."""

    charge: Charge
    under_limits: BucketImage
    decision: Decision | None
    after: BucketImage | None  # None if the charge does not fit
    closed: HourUsage | None  # the hour of usage that a write closes
    stored: BucketImage | None


def charge(
    tables: Tables,
    namespace_id: str,
    request: ChargeRequest,
    noted: TakenTallies | None = None,
    raised: list[Crossing] | None = None,
) -> ChargeOutcome:
    """Charge every bucket or none. The stamp is read inside the transaction.

    The write of a charged bucket also stores the counts that were ``noted`` for it. It marks the
    thresholds that the charge reaches, and lists them in ``raised``.
    """
    if noted is not None or raised:
        _begin(noted, raised)
    now_ms, planned = request.clock(), list[_Planned]()
    for wanted in request.charges:
        image, closed = tables.get_bucket(namespace_id, wanted.entity_id, wanted.resource), None
        if image is not None:
            image, closed = roll(image, now_ms)
        target = prepared(image, wanted.of_request(request), now_ms)
        if target is None:
            assert image is not None, "an absent bucket has no configuration"
            return StaleLimits(image.config_version)
        after, decision = after_plain_charge(target, wanted, now_ms), None
        if after is None:
            decision = decide(target, (wanted,), now_ms)
            after = decision.after() if decision.carried else None
        planned.append(_Planned(wanted, target, decision, after, closed, image))
        if image is None:
            refuse_if_purging(tables, namespace_id)
    if None in [each.after for each in planned]:
        return _rejection(tables, namespace_id, planned, now_ms)
    images: list[BucketImage] = []
    granted = Grant(request.charges, images)
    for position, (wanted, target, decision, after, closed, _) in enumerate(planned):
        assert after is not None, "the charge fits"
        if decision is not None:
            after = _with_holds(granted, position, decision, after)  # noqa: PLW2901
        if noted is not None:
            after = _with_noted(tables, namespace_id, wanted, after, noted)  # noqa: PLW2901
        if granted.quota_holds and granted.quota_holds[position]:
            after = _with_marks(wanted, after, now_ms, raised)  # noqa: PLW2901
        if wanted.switch is not None and wanted.is_debt:
            fitted = fits(target, wanted.amounts_milli, now_ms)
            granted.would_reject = granted.would_reject or not fitted
        _write(tables, namespace_id, wanted.entity_id, wanted.resource, after, closed=closed)
        images.append(after)
    if request.charges[0].until_ms is not None:
        place = images[0].writes, 0
        granted.reservation = reserved(images[0], request.charges[0].amounts_milli, place, {})
    return granted


def _with_holds(
    granted: Grant, position: int, decision: Decision, image: BucketImage
) -> BucketImage:
    """Note what a charge holds; with it the life of its bucket begins."""
    slots, quotas = decision.taken_slots(0), decision.taken_quotas(0)
    if (slots or quotas) and not image.life:
        image = image._replace(life=_new_life())
    if slots:
        granted.holds = _at(granted, granted.holds, position, slots_in_life(slots, image))
    if quotas:
        held = in_life(quotas, image.life)
        granted.quota_holds = _at(granted, granted.quota_holds, position, held)
    return image


def _at(
    granted: Grant, of_all: tuple[tuple[T, ...], ...], position: int, holds: tuple[T, ...]
) -> tuple[tuple[T, ...], ...]:
    """Return what all charges hold, with the holds of one of them."""
    before: list[tuple[T, ...]] = list(of_all or [() for _ in granted.charges])
    before[position] = holds
    return tuple(before)


def _new_life() -> str:
    return os.urandom(LIFE_BYTES).hex()


def settle(
    tables: Tables,
    namespace_id: str,
    settlements: tuple[Settlement, ...],
    clock: Callable[[], int],
    noted: TakenTallies | None = None,
    raised: list[Crossing] | None = None,
) -> tuple[()]:
    """Write every debt and credit, and the counts that were ``noted`` for these buckets.

    It returns that no settlement is left. Thresholds are marked and listed as by ``charge``.
    """
    if noted is not None or raised:
        _begin(noted, raised)
    now_ms = clock()
    for settlement in settlements:
        entity_id, resource = settlement.entity_id, settlement.resource
        image, closed = _rolled(tables.get_bucket(namespace_id, entity_id, resource), now_ms)
        if image is None and tables.is_purging(namespace_id):
            continue
        if image is not None:
            if settlement.quotas and not image.life:  # the first debt of a call belongs to a life
                image = image._replace(life=_new_life())
            image = with_owed_limits(image, (settlement,), settlement.in_force, now_ms)
        elif not any(amount > 0 for amount in settlement.amounts_milli.values()):
            _add_late(tables, namespace_id, settlement, late_amounts([settlement]), now_ms)
            continue
        decision = decide(image, (settlement,), now_ms)
        _add_late(tables, namespace_id, settlement, decision.late, now_ms)
        if decision.is_empty:
            continue
        after = decision.after()
        if noted is not None:
            after = _with_noted(tables, namespace_id, settlement, after, noted)
        if settlement.quotas:
            after = _with_marks(settlement, after, now_ms, raised)
        _write(tables, namespace_id, entity_id, resource, after, closed=closed)
    return ()


def _add_late(
    tables: Tables,
    namespace_id: str,
    settlement: Settlement,
    late: Mapping[str, tuple[int, int]],
    now_ms: int,
) -> None:
    """Count what is settled of limits that the bucket does not have: as usage alone."""
    if late:
        usage = late_usage(late, now_ms, settlement.in_force)
        tables.add_usage(namespace_id, settlement.entity_id, settlement.resource, usage)


def are_exhausted(
    tables: Tables, namespace_id: str, rejected: Sequence[RejectingQuota], now_ms: int
) -> bool:
    """Tell whether one of these quotas is exhausted and not marked."""
    return any(
        image is not None and exhausted_mark(each, image, now_ms) is not None
        for each in rejected
        for image in [tables.get_bucket(namespace_id, each.entity_id, each.resource)]
    )


def mark_exhausted(
    tables: Tables, namespace_id: str, rejected: Sequence[RejectingQuota], now_ms: int
) -> list[Exhaustion]:
    """Mark the quotas that are exhausted; return those that are newly marked."""
    marked = []
    for each in rejected:
        entity_id, resource = each.entity_id, each.resource
        image, closed = _rolled(tables.get_bucket(namespace_id, entity_id, resource), now_ms)
        after = None if image is None else with_exhausted(each, image, now_ms)
        if after is not None:
            image, exhaustion = after
            _write(tables, namespace_id, entity_id, resource, image, closed=closed)
            marked.append(exhaustion)
    return marked


def renew(
    tables: Tables,
    namespace_id: str,
    renewals: tuple[Renewal, ...],
    clock: Callable[[], int],
) -> list[RenewalOutcome]:
    """Renew slots; return the new expiry of each hold, None if the hold had expired."""
    now_ms, outcomes = clock(), list[RenewalOutcome]()
    for renewal in renewals:
        entity_id, resource = renewal.entity_id, renewal.resource
        image, closed = _rolled(tables.get_bucket(namespace_id, entity_id, resource), now_ms)
        decision = decide(image, (renewal,), now_ms)
        moments = decision.renewed(0)
        if any(moments):
            _write(tables, namespace_id, entity_id, resource, decision.after(), closed=closed)
        outcomes.append(moments)
    return outcomes


def get(tables: Tables, namespace_id: str, entity_id: str, resource: str) -> BucketImage | None:
    """Return one bucket as it is stored."""
    return tables.get_bucket(namespace_id, entity_id, resource)


def states(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    clock: Callable[[], int],
) -> Listing[list[BucketState]]:
    """List the buckets of an entity, of a resource, or of both, one state per limit.

    Each page has a stamp of its own.
    """
    states: list[BucketState] = []
    for page in tables.bucket_pages(namespace_id, entity_id, resource):
        now_ms = clock()
        for row in page:
            states.extend(bucket_states(*row[1:], now_ms))
        yield
    return states


def page(
    tables: Tables,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    *,
    after: BucketKey | None,
    limit: int,
    clock: Callable[[], int],
) -> tuple[list[BucketState], BucketKey | None]:
    """List buckets by entity and resource; with them the last key, if there are more."""
    rows = tables.buckets(namespace_id, entity_id, resource, after, limit + 1)
    now_ms = clock()
    states = [state for row in rows[:limit] for state in bucket_states(*row[1:], now_ms)]
    return states, rows[limit - 1][1:3] if len(rows) > limit else None


def some(
    tables: Tables,
    namespace_id: str,
    wanted: Sequence[BucketKey],
    clock: Callable[[], int],
) -> Listing[list[BucketState]]:
    """List buckets by their keys, in this order; missing ones are left out."""
    states: list[BucketState] = []
    for start in range(0, len(wanted), BATCH):
        now_ms = clock()
        for key in wanted[start : start + BATCH]:
            image = tables.get_bucket(namespace_id, *key)
            if image is not None:
                states.extend(bucket_states(*key, image, now_ms))
        yield
    return states


def entries(
    tables: Tables, namespace_id: str, *, after: BucketKey | None, limit: int
) -> tuple[list[BucketEntry], BucketKey | None]:
    """List buckets by entity and resource, undecoded; with them the last key, if there are more."""
    rows = tables.undecoded_buckets(namespace_id, after, limit + 1)
    found = [
        BucketEntry(row.entity_id, row.resource, row.revision, partial(_decoded_states, row))
        for row in rows[:limit]
    ]
    return found, rows[limit - 1][:2] if len(rows) > limit else None


def _decoded_states(row: UndecodedBucket, now_ms: int) -> list[BucketState]:
    return bucket_states(row.entity_id, row.resource, row.image(), now_ms)


def resources(tables: Tables, namespace_id: str) -> list[str]:
    """List the resources that have, or had, buckets."""
    return tables.resources_in_use(namespace_id)


def capacity(
    tables: Tables,
    namespace_id: str,
    resource: str,
    limit_name: str,
    parents_only: bool,
    clock: Callable[[], int],
) -> Listing[ResourceCapacity]:
    """Sum one limit of a resource over its entities; an unknown entity has no parent."""
    counted: list[BucketState] = []
    for page in tables.bucket_pages(namespace_id, None, resource):
        now_ms = clock()
        for row in page:
            entity = tables.get_entity(namespace_id, row.entity_id) if parents_only else None
            if entity is None or entity.is_parent:
                state = counted_state(*row[1:], limit_name, now_ms)
                if state is not None:
                    counted.append(state)
        yield
    return resource_capacity(resource, limit_name, counted)


def reset(tables: Tables, namespace_id: str, change: AuditedChange) -> bool:
    """Fill a bucket; False if there is no bucket, which counts as full."""
    image, closed = _changed_bucket(tables, namespace_id, change)
    if image is None:
        return False
    after, moves = refills.reset(image, change.now_ms)
    _write_change(tables, namespace_id, change, after, closed)
    added = refills.added_milli(moves)
    if any(added.values()):
        details = refills.added_details("forgiven", added, after.limits)
        record(tables, namespace_id, change, AuditAction.BUCKET_RESET, details)
    return True


def top_up(
    tables: Tables,
    namespace_id: str,
    change: AuditedChange,
    amounts: Mapping[str, int],
    in_force: InForce | None = None,
) -> bool:
    """Add tokens up to the capacity; False if there is no bucket, which counts as full.

    The window of a quota can be topped up before its first charge: then the bucket is created.
    """
    image, closed = _changed_bucket(tables, namespace_id, change)
    quotas = in_force if in_force is not None and in_force.has_quota_among(amounts) else None
    if image is None:
        if quotas is None:
            return False
        refuse_if_purging(tables, namespace_id)
        image = _new_bucket(quotas, None, change.now_ms)
    elif quotas is not None and not is_newer(image, quotas):
        image = under_limits(image, quotas, change.now_ms)
    after, moves = refills.top_up(image, amounts, change.now_ms)
    _write_change(tables, namespace_id, change, after, closed)
    added = refills.added_milli(moves)
    if any(added.values()):
        details = {
            "amounts": plain_amounts(amounts),
            **refills.added_details("added", added, after.limits),
        }
        record(tables, namespace_id, change, AuditAction.BUCKET_TOPPED_UP, details)
    return True


def pause(
    tables: Tables,
    namespace_id: str,
    change: AuditedChange,
    until_ms: int,
    in_force: InForce | None,
) -> bool:
    """Admit nothing until a moment, or lift the pause; False if the pause stays as it is.

    A bucket that does not exist is created, under the limits in force, if there are any.
    """
    now_ms = change.now_ms
    image, closed = _changed_bucket(tables, namespace_id, change)
    before_ms = None if image is None else running_pause_ms(image, now_ms)
    paused_ms = refills.paused_until(before_ms, until_ms, now_ms)
    if paused_ms == before_ms:
        return False
    if image is None:
        refuse_if_purging(tables, namespace_id)
        image = _new_bucket(in_force, paused_ms, now_ms)
    after = image._replace(paused_until_ms=paused_ms, writes=image.writes + 1)
    _write_change(tables, namespace_id, change, after, closed)
    action, details = pause_event(paused_ms)
    record(tables, namespace_id, change, action, details)
    return True


def _new_bucket(in_force: InForce | None, expires_ms: int | None, now_ms: int) -> BucketImage:
    """Return a full bucket; without stored limits it gets those of the first charge."""
    if in_force is None:
        return BucketImage({}, 0, expires_ms, now_ms // HOUR_MS)
    image = full_bucket(in_force, now_ms)
    return image._replace(expires_ms=in_force.extended_ttl(None, now_ms))


def drop(tables: Tables, row: BucketRow) -> None:
    """Delete a bucket; the usage of its open hour is kept.

    Calls in flight count their costs at their ends.
    """
    usage = open_hour(without_holds(row.image))
    if not usage.is_empty:
        tables.add_usage(row.namespace_id, row.entity_id, row.resource, usage)
    tables.delete_bucket(row.namespace_id, row.entity_id, row.resource)


def _changed_bucket(
    tables: Tables, namespace_id: str, change: AuditedChange
) -> tuple[BucketImage | None, HourUsage | None]:
    """Return the bucket of a change, and the usage of the hour that the change closes."""
    image = tables.get_bucket(namespace_id, change.subject, change.resource or "")
    return _rolled(image, change.now_ms)


def _write_change(
    tables: Tables,
    namespace_id: str,
    change: AuditedChange,
    image: BucketImage,
    closed: HourUsage | None,
) -> None:
    resource = change.resource or ""
    _write(tables, namespace_id, change.subject, resource, image, closed=closed)


def _rolled(image: BucketImage | None, now_ms: int) -> tuple[BucketImage | None, HourUsage | None]:
    return (None, None) if image is None else roll(image, now_ms)


def _rejection(
    tables: Tables,
    namespace_id: str,
    planned: list[_Planned],
    now_ms: int,
) -> Rejection:
    """Reject the request, but re-base buckets whose limits have changed.

    With its old rate, a bucket might never hold the amount of a request under larger limits.
    """
    listed: list[LimitStatus] = []
    for wanted, target, _, _, closed, image in planned:
        listed.extend(statuses(wanted, target, now_ms))
        seen = swept(target, now_ms)
        if image is not None and seen is not image:
            _write(tables, namespace_id, wanted.entity_id, wanted.resource, seen, closed=closed)
    return Rejection(tuple(with_one_wait(listed, now_ms)))


def _begin(noted: TakenTallies | None, raised: list[Crossing] | None) -> None:
    """Undo what a transaction before this one has taken, since it may have been rolled back."""
    if noted is not None:
        noted.give_back()
    if raised is not None:
        raised.clear()


def _with_marks(
    wanted: Charge | Settlement, image: BucketImage, now_ms: int, raised: list[Crossing] | None
) -> BucketImage:
    """Return the bucket with its reached thresholds marked, if somebody is told of them."""
    if raised is None:
        return image
    image, crossings = with_raised(wanted.entity_id, wanted.resource, image, now_ms)
    raised += crossings
    return image


def _with_noted(
    tables: Tables,
    namespace_id: str,
    wanted: Charge | Settlement,
    image: BucketImage,
    noted: TakenTallies,
) -> BucketImage:
    """Return the bucket with the counts that this client has noted for it."""
    bucket = (namespace_id, wanted.entity_id, wanted.resource)
    taken = noted.take(bucket)
    return image if taken is None else with_noted(tables, bucket, image, taken)


def _write(
    tables: Tables,
    namespace_id: str,
    entity_id: str,
    resource: str,
    image: BucketImage,
    *,
    closed: HourUsage | None,
) -> None:
    """Store a bucket, and the usage of the hour that the write closes."""
    if closed is not None:
        tables.add_usage(namespace_id, entity_id, resource, closed)
    tables.put_bucket(namespace_id, entity_id, resource, image)
