"""The kinds of write to a bucket, ready to be sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field

from zae_limiter.admission.image import HOUR_MS, BucketImage, Rate, is_paused
from zae_limiter.admission.in_force import InForce, expires_ms, plain_name
from zae_limiter.admission.moves import Move, Wanted, after, first_move, guessed_move, move
from zae_limiter.admission.quotas import first_quota_move
from zae_limiter.admission.rebase import (
    drop,
    forgotten_of_children,
    full_bucket,
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
from zae_limiter.items.buckets.changes import BucketChange, through_children, total_at
from zae_limiter.items.buckets.planned_quotas import PlannedQuotas
from zae_limiter.items.buckets.planned_slots import Moments, PlannedSlots
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
    HourState,
    encode_rejections,
    new_origin,
)
from zae_limiter.items.version_record import DEFAULT_USAGE_DAYS

NO_RATE = Rate(0, 0, 1)  # for moves that do not depend on the rate
NOTHING = Wanted()
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
    ``structural`` says that the write only prepares the bucket. ``positions`` are
    those of the changes that the write carries, ``net_milli`` the amounts that it takes from each
    limit, ``moves`` are listed for the counters.

    ``store_first`` has a finished hour that must be stored before the write is sent, since the
    write drops it from the item. ``begins_hour`` is the hour that the write begins, if any.
    ``tally`` counts acquires that ended before the write. ``late_credits`` are counted as usage
    after the write, beside the item: credits to limits that the bucket does not have any more.
    ``moments`` are those at which slots of the changes expire, by position. ``may_leave_debt`` says
    that a limit may be below zero after the write, which the TTL has to outlast.
    """

    request: ItemUpdate
    write_id: str
    positions: Sequence[int] = ()
    moves: Sequence[Move] = ()
    net_milli: Mapping[str, int] = field(default_factory=dict)
    tally: Tally = NO_TALLY
    may_leave_debt: bool = True
    previous_write_id: str | None = None
    guarded_retry: Callable[[], ItemUpdate] | None = None
    store_first: HourState | None = None
    begins_hour: BegunHour | None = None
    moments: Mapping[int, Moments] | None = None
    quotas: PlannedQuotas | None = None
    late_credits: Mapping[str, tuple[int, int]] | None = None
    structural: bool = False
    gives: bool = False


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


@dataclass(slots=True)
class CarriedChanges:
    """The changes of a group that one write carries, added up.

    ``positions`` are those of the changes in the group, ``wanted`` their amounts by limit.
    ``through_milli`` is the part of the amounts that comes through children of the entity, and
    ``elsewhere`` the part of the admitted acquires that are calls of other buckets.
    ``has_charge`` says that a charge is among them, also one that is not checked. ``has_debt``,
    ``has_credit`` and ``has_reservation`` say so of debts, credits and reservations of tokens.
    """

    positions: Sequence[int]
    wanted: Mapping[str, Wanted]
    admitted: int
    through_milli: Mapping[str, int]
    slots: PlannedSlots | None = None
    quotas: PlannedQuotas | None = None
    has_charge: bool = True
    has_debt: bool = False
    has_credit: bool = False
    has_reservation: bool = False
    elsewhere: int = 0

    @classmethod
    def of(
        cls,
        changes: Sequence[BucketChange],
        positions: Sequence[int],
        image: BucketImage,
        now_ms: int,
        slots: PlannedSlots | None = None,
        quotas: PlannedQuotas | None = None,
    ) -> CarriedChanges:
        carried = [changes[position].without_absent_limits(image) for position in positions]
        through_milli = through_children(carried)
        if quotas is not None:
            through_milli = quotas.with_children(through_milli)
        result = cls(
            positions=positions,
            wanted=total_at(carried, image, now_ms),
            admitted=sum(change.admitted for change in carried),
            through_milli=through_milli,
            slots=slots,
            quotas=quotas,
            has_charge=any(change.is_charge for change in carried),
            elsewhere=sum(change.elsewhere for change in carried),
        )
        tokens = result.tokens().values()
        result.has_debt = any(each.owed_milli > 0 for each in tokens)
        result.has_credit = any(each.returned_milli > 0 for each in tokens)
        result.has_reservation = any(each.needed_milli is not None for each in tokens)
        return result

    def tokens(self) -> Mapping[str, Wanted]:
        """Return the amounts of rates, without those of slots and quotas."""
        slots, quotas = self.slots, self.quotas
        if slots is None and quotas is None:
            return self.wanted
        return {
            key: each
            for key, each in self.wanted.items()
            if not (slots is not None and slots.is_slots(key))
            and not (quotas is not None and quotas.has(key))
        }


def balance_write(
    known: KnownBucket,
    bucket: StoredBucket,
    carried: CarriedChanges,
    in_force: InForce,
    context: WriteContext,
) -> PlannedWrite:
    """Write charges, debts and credits to a bucket, all or none. This is the usual write."""
    image, slots, now_ms = bucket.image, carried.slots, context.now_ms
    others, age_ms = known.others_milli_per_s, now_ms - known.at_ms
    moves: list[Move] = [
        guessed_move(key, image.limits[key], each, now_ms, age_ms, others.get(key, 0))
        for key, each in carried.tokens().items()
    ]
    quotas = carried.quotas
    takes, gives = carried.has_charge or carried.has_debt, carried.has_credit
    may_leave_debt = carried.has_debt or carried.has_reservation
    if slots is not None:
        slot_moves = slots.moves(carried.wanted)
        moves += slot_moves
        takes, gives = takes or bool(slot_moves), gives or slots.gives
    if quotas is not None:
        quota_moves = quotas.moves()
        moves += quota_moves
        takes, gives = takes or bool(quota_moves), gives or quotas.gives
        may_leave_debt = True  # the TTL has to outlast the window
    elif (
        slots is None
        and not (takes or in_force.has_terms)
        and _counts_admissions_only(bucket, carried, context)
    ):
        return credit(carried, context, image.limits, bucket.write_id)
    counts = _counts_of_hour(known, bucket, carried, context)
    turn = None if counts is None else turn_of(bucket, counts, context.write_id)
    write_id = context.write_id if turn is None else turn.write_id
    until_ms = in_force.extended_ttl(image.expires_ms, now_ms, context.usage_ms)
    if not in_force.outlasts_refill(until_ms, len(image.limits), now_ms):
        may_leave_debt = True  # of a limit that is not in force
    if may_leave_debt:
        until_ms = expires_ms(after(image, moves), in_force, now_ms, context.usage_ms)
    admitted = carried.admitted if counts is None else 0
    keeps_ttl = until_ms == image.expires_ms
    trailer = WriteTrailer.to(bucket, write_id, admitted, until_ms, keeps_ttl)
    version = 0 if image.config_version else in_force.governing_version
    slot_writes = () if slots is None else slots.writes()
    ends_pause = image.paused_until_ms is not None and not is_paused(image, now_ms)
    hold_writes = () if quotas is None else quotas.writes()
    request = balance_update(
        keys.bucket(*context.shard_id),
        moves,
        trailer,
        bucket,
        version=version,
        counts=counts,
        slot_writes=slot_writes,
        ends_pause=ends_pause,
        hold_writes=hold_writes,
    )

    def guarded() -> ItemUpdate:
        return only_after(request, bucket.write_id)

    net_milli = {each.key: each.consumed_milli for each in moves}
    needs_latest = quotas is not None and quotas.needs_latest
    write = PlannedWrite(
        guarded() if needs_latest else request,
        write_id,
        carried.positions,
        moves,
        net_milli,
        context.tally,
        may_leave_debt,
    )
    if turn is not None:
        write.store_first, write.begins_hour = turn.store_first, turn.begins_hour
    write.gives = gives or not takes
    write.previous_write_id, write.guarded_retry = bucket.write_id, guarded
    if slots is not None:
        write.moments = slots.moments
    write.quotas = quotas
    return write


def _counts_admissions_only(
    bucket: StoredBucket, carried: CarriedChanges, context: WriteContext
) -> bool:
    """Tell whether a write counts nothing by the hour except admitted acquires."""
    return (
        not carried.through_milli
        and not carried.elsewhere
        and context.tally.is_empty
        and not is_over(bucket, context.now_ms, context.usage_ms)
    )


def _counts_of_hour(
    known: KnownBucket, bucket: StoredBucket, carried: CarriedChanges, context: WriteContext
) -> HourCounts | None:
    """Return the counts of a write by the hour; None if the trailer of the write has them all."""
    hour = context.now_ms // HOUR_MS
    is_running = hour <= bucket.hours.hour
    tally = context.tally
    if carried.elsewhere:
        tally = tally._replace(elsewhere=carried.elsewhere)
    if is_running and not carried.through_milli and tally.is_empty:
        return None
    added = HourUsage(hour, NO_AMOUNTS, carried.admitted, carried.through_milli, tally)
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
    carried: CarriedChanges,
    context: WriteContext,
    limits: Sized,
    previous_write_id: str | None = None,
) -> PlannedWrite:
    """Write credits alone: balances only grow, so nothing has to be known of the bucket.

    ``limits`` are those that it probably has: with many of them it has no room for earlier ids.
    """
    moves = [
        move(key, NO_RATE, each, context.now_ms, overflowing=False)
        for key, each in carried.wanted.items()
    ]
    keeps_ids = bucket_item.keeps_earlier_ids(limits)
    trailer = WriteTrailer(context.write_id, carried.admitted, keeps_ids=keeps_ids)

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
        positions=carried.positions,
        net_milli={key: each.net_milli for key, each in carried.wanted.items()},
        previous_write_id=previous_write_id,
        guarded_retry=None if previous_write_id is None else guarded,
        gives=True,
    )


def first(
    in_force: InForce, carried: CarriedChanges, link: EntityLink, context: WriteContext
) -> PlannedWrite:
    """Create the bucket, or take from it if it exists and is full: both have the same result."""
    shard_id, now_ms, slots = context.shard_id, context.now_ms, carried.slots
    write_id, hour = TURN_MARK + context.write_id, now_ms // HOUR_MS
    rates = dict(zip(in_force.keys, in_force.rates, strict=True))
    full, quotas = full_bucket(in_force, now_ms), carried.quotas
    moves = [
        first_move(key, rate, carried.wanted.get(key, NOTHING), now_ms)
        if quotas is None or not quotas.has(key)
        else first_quota_move(full.limits[key], quotas.applied()[key], now_ms)
        for key, rate in rates.items()
    ]
    until_ms = expires_ms(after(full, moves), in_force, now_ms, context.usage_ms)
    trailer = WriteTrailer(
        write_id=write_id,
        expires_ms=until_ms,
        keeps=False,
        keeps_ids=bucket_item.keeps_earlier_ids(rates),
    )
    tally = context.tally._replace(elsewhere=carried.elsewhere)
    counts = HourCounts(
        form=HourForm.COUNT,
        added=HourUsage(hour, NO_AMOUNTS, carried.admitted, carried.through_milli, tally),
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
        slot_writes=() if slots is None else slots.writes(),
        hold_writes=() if quotas is None else quotas.writes(),
    )

    def only_if_absent() -> ItemUpdate:
        # Another origin: the first write may have created an item that was removed since.
        again = counts._replace(origin=new_origin())
        return first_write(new_bucket._replace(counts=again), moves, trailer, only_if_absent=True)

    return PlannedWrite(
        request=first_write(new_bucket, moves, trailer),
        write_id=write_id,
        guarded_retry=only_if_absent,
        positions=carried.positions,
        begins_hour=BegunHour(counts.origin, hour) if context.usage_ms else None,
        tally=context.tally,
        moments=None if slots is None else slots.moments,
        quotas=quotas,
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
