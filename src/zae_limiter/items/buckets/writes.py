"""The kinds of write to a bucket, ready to be sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field

from zae_limiter.admission.decide import Decision
from zae_limiter.admission.image import HOUR_MS, BucketImage, Rate, is_paused
from zae_limiter.admission.in_force import InForce, expires_ms, plain_name
from zae_limiter.admission.moves import Move, after
from zae_limiter.admission.rebase import (
    drop,
    forgotten_of_children,
    has_room,
    is_unused,
    namesake,
    too_many_stored,
    without_drops,
)
from zae_limiter.admission.slots import with_slot_limits
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.admission.usage import NO_AMOUNTS, HourUsage
from zae_limiter.items.buckets.cache import FreshBucket, KnownBucket
from zae_limiter.items.buckets.turning import (
    BegunHour,
    Turn,
    counts_of_running_hour,
    hour_counts,
    is_over,
    turn_of,
)
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket
from zae_limiter.items.stored.bucket_updates import (
    NewBucket,
    WriteTrailer,
    balance_update,
    bucket_update,
    first_write,
    only_after,
    require_rate,
    structural_write,
)
from zae_limiter.items.stored.keys import ShardId
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.items.stored.usage.clauses import HourCounts, HourForm
from zae_limiter.items.stored.usage.hours import (
    TURN_MARK,
    ItemHours,
    encode_rejections,
    new_origin,
)
from zae_limiter.items.version_record import DEFAULT_USAGE_DAYS

NO_LATE: Mapping[str, tuple[int, int]] = {}
STRUCTURAL = "+"  # keeps the id of a structural write apart from that of the charge that follows
MAX_DROPS = 16  # limits that one write drops: each takes eight operators of its condition
DEFAULT_USAGE_MS = DEFAULT_USAGE_DAYS * 86_400_000


@dataclass(slots=True)
class PlannedWrite:
    """One conditional write, and the repetition of it for an unknown outcome.

    The write leaves ``write_id`` on the item and expects ``previous_write_id`` there.
    ``guarded_retry`` builds the repetition that cannot apply twice, as long as no copy of the write
    is in flight; None for writes that must not be repeated. ``gives`` says that the write gives
    tokens: if a copy may be in flight, it is not repeated, since a late copy would give twice.
    ``structural`` says that the write only prepares the bucket. ``net_milli`` are the amounts that
    it takes from each limit, ``moves`` are listed for the counters.

    ``store_first`` has a finished hour that must be stored before the write is sent, since the
    write drops it from the item. ``begins_hour`` is the hour that the write begins, if any.
    ``tally`` counts acquires that ended before the write. ``may_leave_debt`` says
    that a limit may be below zero after the write, which the TTL has to outlast.
    """

    request: ItemUpdate
    write_id: str
    decision: Decision | None = None  # what the write makes; None if it only prepares the bucket
    moves: Sequence[Move] = ()
    net_milli: Mapping[str, int] = field(default_factory=dict)
    tally: Tally = NO_TALLY
    may_leave_debt: bool = True
    previous_write_id: str | None = None
    guarded_retry: Callable[[], ItemUpdate] | None = None
    store_first: ItemHours | None = None
    begins_hour: BegunHour | None = None
    structural: bool = False
    gives: bool = False

    @property
    def late_credits(self) -> Mapping[str, tuple[int, int]]:
        """What is counted as usage after the write, beside the item."""
        return NO_LATE if self.decision is None else self.decision.late


@dataclass(slots=True)
class WriteContext:
    """The facts that hold for one attempt: the item, the stamp and the write id.

    ``usage_ms`` is how long usage is kept; with 0 hours are not turned. ``tally`` counts acquires
    of this client that were rejected or have waited, and that the bucket has not counted yet.
    ``is_turning`` says that a write of this client that turns the hour is under way,
    ``is_aggregated`` that an aggregator stores and clears finished hours.
    """

    shard_id: ShardId
    now_ms: int
    write_id: str
    usage_ms: int = DEFAULT_USAGE_MS
    tally: Tally = NO_TALLY
    is_turning: bool = False
    is_aggregated: bool = False


def balance_write(
    known: KnownBucket,
    bucket: StoredBucket,
    decision: Decision,
    in_force: InForce,
    context: WriteContext,
) -> PlannedWrite:
    """Write charges, debts and credits to a bucket, all or none. This is the usual write."""
    image, now_ms, moves = bucket.image, context.now_ms, decision.rate_moves()
    takes, gives = decision.has_charge or decision.has_debt, decision.has_credit
    may_leave_debt = decision.has_debt or decision.has_reservation
    if decision.has_slots:
        slot_moves = decision.slot_moves()
        moves += slot_moves
        takes = takes or bool(slot_moves)
    if decision.has_quotas:
        quota_moves = decision.quota_moves()
        moves += quota_moves
        takes, may_leave_debt = takes or bool(quota_moves), True  # the TTL outlasts the window
    if decision.has_slots or decision.has_quotas:
        gives = gives or decision.ends_holds
    elif not (takes or in_force.has_terms) and _counts_admissions_only(bucket, decision, context):
        return credit(decision, context, image.limits, bucket.write_id)
    counts = _counts_of_hour(known, bucket, decision, context)
    turn = None if counts is None else turn_of(bucket, counts, context.write_id)
    write_id = context.write_id if turn is None else turn.write_id
    until_ms = in_force.extended_ttl(image.expires_ms, now_ms, context.usage_ms)
    if not in_force.outlasts_refill(until_ms, len(image.limits), now_ms):
        may_leave_debt = True  # of a limit that is not in force
    if may_leave_debt:
        until_ms = expires_ms(after(image, moves), in_force, now_ms, context.usage_ms)
    admitted = decision.admitted if counts is None else 0
    keeps_ttl = until_ms == image.expires_ms
    trailer = WriteTrailer.to(bucket, write_id, admitted, until_ms, keeps_ttl)
    version = 0 if image.config_version else in_force.governing_version
    ends_pause = image.paused_until_ms is not None and not is_paused(image, now_ms)
    request = balance_update(
        keys.bucket(*context.shard_id),
        moves,
        trailer,
        bucket,
        version=version,
        counts=counts,
        slot_writes=decision.slot_writes() if decision.has_slots else (),
        ends_pause=ends_pause,
        hold_writes=decision.hold_writes() if decision.has_quotas else (),
    )

    def guarded() -> ItemUpdate:
        return only_after(request, bucket.write_id)

    write = PlannedWrite(
        guarded() if decision.needs_latest else request,
        write_id,
        decision,
        moves,
        {each.key: each.consumed_milli for each in moves},
        context.tally,
        may_leave_debt,
    )
    if turn is not None:
        write.store_first, write.begins_hour = turn.store_first, turn.begins_hour
    write.gives = gives or not takes
    write.previous_write_id, write.guarded_retry = bucket.write_id, guarded
    return write


def _counts_admissions_only(
    bucket: StoredBucket, decision: Decision, context: WriteContext
) -> bool:
    """Tell whether a write counts nothing by the hour except admitted acquires."""
    return (
        not decision.through_milli
        and not decision.elsewhere
        and context.tally.is_empty
        and not is_over(bucket, context.now_ms, context.usage_ms)
    )


def _counts_of_hour(
    known: KnownBucket, bucket: StoredBucket, decision: Decision, context: WriteContext
) -> HourCounts | None:
    """Return the counts of a write by the hour; None if the trailer of the write has them all."""
    hour = context.now_ms // HOUR_MS
    is_running = hour <= bucket.hours.hour
    tally = context.tally
    if decision.elsewhere:
        tally = tally._replace(elsewhere=decision.elsewhere)
    if is_running and not decision.through_milli and tally.is_empty:
        return None
    added = HourUsage(hour, NO_AMOUNTS, decision.admitted, decision.through_milli, tally)
    if is_running:
        return counts_of_running_hour(bucket, added)
    return hour_counts(
        known,
        bucket,
        context.now_ms,
        added,
        usage_ms=context.usage_ms,
        is_turning=context.is_turning,
        is_aggregated=context.is_aggregated,
    )


def credit(
    decision: Decision,
    context: WriteContext,
    limits: Sized,
    previous_write_id: str | None = None,
) -> PlannedWrite:
    """Write credits alone: balances only grow, so nothing has to be known of the bucket.

    ``limits`` are those that it probably has: with many of them it has no room for earlier ids.
    """
    moves = decision.blind_moves()
    keeps_ids = bucket_item.keeps_earlier_ids(limits)
    trailer = WriteTrailer(context.write_id, decision.admitted, keeps_ids=keeps_ids)

    request = bucket_update(keys.bucket(*context.shard_id), moves, trailer)
    for each in moves:
        require_rate(request, each.key)
    if not moves:
        request.any_item()

    def guarded() -> ItemUpdate:
        assert previous_write_id is not None, "the bucket was seen"
        return only_after(request, previous_write_id)

    return PlannedWrite(
        request=request,
        write_id=context.write_id,
        decision=decision,
        net_milli={each.key: each.consumed_milli for each in moves},
        previous_write_id=previous_write_id,
        guarded_retry=None if previous_write_id is None else guarded,
        gives=True,
    )


def first(
    in_force: InForce, decision: Decision, link: EntityLink, context: WriteContext
) -> PlannedWrite:
    """Create the bucket, or take from it if it exists and is full: both have the same result."""
    shard_id, now_ms, full = context.shard_id, context.now_ms, decision.image
    write_id, hour = TURN_MARK + context.write_id, now_ms // HOUR_MS
    rates = dict(zip(in_force.keys, in_force.rates, strict=True))
    moves = decision.first_moves()
    until_ms = expires_ms(after(full, moves), in_force, now_ms, context.usage_ms)
    trailer = WriteTrailer(
        write_id=write_id,
        expires_ms=until_ms,
        keeps=False,
        keeps_ids=bucket_item.keeps_earlier_ids(rates),
    )
    tally = context.tally._replace(elsewhere=decision.elsewhere)
    counts = HourCounts(
        form=HourForm.COUNT,
        added=HourUsage(hour, NO_AMOUNTS, decision.admitted, decision.through_milli, tally),
        origin=new_origin(),
        rejections=encode_rejections(tally, bucket_item.limit_indexes(rates)),
    )
    new_bucket = NewBucket(
        key=keys.bucket(*shard_id),
        index_keys=bucket_item.index_keys(*shard_id),
        link=link,
        rates=rates,
        version=in_force.governing_version,
        generation=now_ms,
        counts=counts,
        slot_writes=decision.slot_writes(),
        hold_writes=decision.hold_writes(),
    )

    def only_if_absent() -> ItemUpdate:
        # Another origin: the first write may have created an item that was removed since.
        again = counts._replace(origin=new_origin())
        return first_write(new_bucket._replace(counts=again), moves, trailer, only_if_absent=True)

    return PlannedWrite(
        request=first_write(new_bucket, moves, trailer),
        write_id=write_id,
        guarded_retry=only_if_absent,
        decision=decision,
        begins_hour=BegunHour(counts.origin, hour) if context.usage_ms else None,
        tally=context.tally,
    )


def rebase(
    bucket: StoredBucket,
    target: BucketImage,
    in_force: InForce,
    context: WriteContext,
    other_rates: Mapping[str, Rate] = {},
) -> PlannedWrite:
    """Bring the bucket's limits to those of ``target``; levels and a running pause stay.

    ``in_force`` are the limits of the whole bucket, ``target`` is at the shard's own rates. Where
    one write cannot do everything, it makes room for the next one. ``other_rates`` are those of
    limits in ``target`` that are neither in force nor in the bucket.
    """
    now_ms, usage_ms = context.now_ms, context.usage_ms
    if not is_paused(target, now_ms):
        target = target._replace(paused_until_ms=None)
    counts, turn = None, Turn(context.write_id)
    turns = is_over(bucket, now_ms, usage_ms)
    keeps = turns
    if forgotten_of_children(bucket.image.limits, target.limits):
        # A dropped limit would leave its counts to one that may count here.
        keeps = turns or has_room(without_drops(bucket.image, target).limits)
    drops = [] if keeps else _drops_of_one_write(bucket, target)
    target = _reachable(bucket, target, drops, turns=keeps)
    forgotten = forgotten_of_children(bucket.image.limits, target.limits)
    added = HourUsage(now_ms // HOUR_MS, through_children=forgotten)
    if turns:
        counts = hour_counts(FreshBucket(bucket), bucket, now_ms, added, usage_ms=usage_ms)
        turn = turn_of(bucket, counts, context.write_id)
    elif forgotten:
        counts = counts_of_running_hour(bucket, added)
    elif bucket.image.limits.keys() - target.limits.keys() and bucket.hours.finished is not None:
        turn = turn._replace(store_first=bucket.hours)
    until_ms = expires_ms(target, in_force.at(bucket.shard), now_ms, usage_ms)
    write_id = turn.write_id + STRUCTURAL
    trailer = WriteTrailer(
        write_id=write_id,
        expires_ms=until_ms,
        keeps=until_ms == bucket.image.expires_ms,
        keeps_ids=bucket_item.keeps_earlier_ids(target.limits),
    )
    update = structural_write(
        keys.bucket(*context.shard_id),
        bucket,
        target,
        rates=_whole_rates(bucket, target, in_force, other_rates),
        trailer=trailer,
        now_ms=now_ms,
        counts=counts,
    )
    # The write counts the generation up: a repetition is refused if the first one was applied.
    return PlannedWrite(
        request=update,
        write_id=write_id,
        previous_write_id=bucket.write_id,
        guarded_retry=lambda: update,
        structural=True,
        store_first=turn.store_first,
        begins_hour=turn.begins_hour,
    )


def _reachable(
    bucket: StoredBucket, target: BucketImage, drops: Collection[str], *, turns: bool
) -> BucketImage:
    """Return the part of ``target`` that one write with these drops can reach.

    A bucket without room for the rest only gets room: limits are dropped, or the hour is turned, so
    that the next write can drop them.
    """
    image = bucket.image
    reached = without_drops(image, target, drops)
    if has_room(reached.limits):
        return reached
    limits = dict(image.limits)
    for key in drops:
        if namesake(key, limits) is not None or is_unused(image, plain_name(key)):
            drop(key, limits)
    if len(limits) == len(image.limits) and not turns:
        raise too_many_stored(len(reached.limits))
    room = image._replace(limits=limits, paused_until_ms=target.paused_until_ms)
    return room if image.holds is None else with_slot_limits(room)


def _drops_of_one_write(bucket: StoredBucket, target: BucketImage) -> list[str]:
    """Return the limits that a write to ``target`` can drop at once.

    If children count in the bucket, two dropped limits of one name would both leave their counts to
    the same heir, which one expression cannot do. Without an heir there must be no such counts.
    """
    hours, names, drops = bucket.hours, set[str](), []
    through_children = {
        plain_name(key) for key, index in hours.indexes.items() if index in hours.used_by_children
    }
    for key in bucket.image.limits:
        name = plain_name(key)
        if key in target.limits or (hours.has_children and name in names):
            continue
        if name in through_children and namesake(key, target.limits) is None:
            continue
        names.add(name)
        drops.append(key)
    return drops[:MAX_DROPS]


def _whole_rates(
    bucket: StoredBucket,
    target: BucketImage,
    in_force: InForce,
    other_rates: Mapping[str, Rate],
) -> dict[str, Rate]:
    """Return the stored rates of unchanged limits, and the rates in force of all others."""
    before, stored = bucket.image.limits, bucket.whole_rates
    return {
        key: stored[key]
        if key in before and before[key].rate == state.rate
        else in_force.rate_of(key)
        if key in in_force.keys
        else other_rates[key]
        for key, state in target.limits.items()
    }
