"""The kinds of write to a bucket, ready to be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from zae_limiter.admission.image import HOUR_MS, BucketImage, Rate, is_paused
from zae_limiter.admission.in_force import InForce, expires_ms
from zae_limiter.admission.moves import Move, Wanted, after, first_move, guessed_move, move
from zae_limiter.admission.rebase import full_bucket, without_drops
from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.dynamodb.buckets.cache import FreshBucket, KnownBucket
from zae_limiter.dynamodb.buckets.pending import BucketChange, through_children
from zae_limiter.dynamodb.buckets.planned_slots import Moments, PlannedSlots
from zae_limiter.dynamodb.buckets.turning import (
    NO_AMOUNTS,
    Counted,
    Turn,
    counts_of_running_hour,
    hour_counts,
    is_over,
    turn_of,
)
from zae_limiter.dynamodb.items import bucket as bucket_item
from zae_limiter.dynamodb.items.attributes import Item
from zae_limiter.dynamodb.items.bucket import EntityLink, ShardId, StoredBucket
from zae_limiter.dynamodb.items.bucket_updates import (
    NewBucket,
    WriteTrailer,
    bucket_update,
    first_write,
    require_bucket,
    require_limit,
    structural_write,
)
from zae_limiter.dynamodb.items.charge_template import TemplatedCharge
from zae_limiter.dynamodb.items.hour_updates import HourCounts, HourForm
from zae_limiter.dynamodb.items.hours import TURN_MARK, encode_asked, new_origin
from zae_limiter.dynamodb.items.update_expression import UpdateExpression
from zae_limiter.dynamodb.items.usage import OriginHour
from zae_limiter.dynamodb.version_record import DEFAULT_USAGE_DAYS

NO_RATE = Rate(0, 0, 1)  # for moves that do not depend on the rate
NOTHING = Wanted()
SINGLE_CHARGE = (0,)  # positions of a write that carries the leader's charge and nothing else
SINGLE_RESERVATION = [0]  # not the same object: what it leaves has to be looked at
STRUCTURAL = "+"  # keeps the id of a structural write apart from that of the charge that follows
DEFAULT_USAGE_MS = DEFAULT_USAGE_DAYS * 86_400_000

NO_MOMENTS: Mapping[int, Moments] = {}
NO_LATE_CREDITS: Mapping[str, tuple[int, int]] = {}

Totals = Mapping[str, Wanted]


class Sendable(Protocol):
    """An UpdateItem request."""

    @property
    def key(self) -> Item: ...

    def text(self, table: str) -> str: ...


class Attempt(NamedTuple):
    """One conditional write, and how to repeat it if its outcome is unknown.

    The write leaves ``write_id`` on the item and expects ``previous_write_id`` there.
    ``guarded_retry`` builds the repetition that cannot apply twice; None for writes that must not
    be repeated. ``applied_positions`` says which changes of the group the write carries (none if it
    only prepares the bucket for them), ``net_milli`` what it takes from each limit.

    ``store_first`` is a finished hour that must be stored before the write is sent, since the write
    drops it from the item. ``begins_hour`` is the origin and hour that the write begins, if any.
    ``tally`` counts acquires that ended before it. ``late_credits`` are counted as usage after the
    write, beside the item: those to limits that the bucket does not have any more. ``moments`` are
    those at which slots of the changes expire, by position.
    """

    write: Sendable
    write_id: str
    previous_write_id: str | None = None
    guarded_retry: Callable[[], UpdateExpression] | None = None
    structural: bool = False
    plain_moves: int = 0  # for the counters
    clamp_moves: int = 0
    applied_positions: Sequence[int] = ()
    net_milli: Mapping[str, int] = NO_AMOUNTS
    store_first: OriginHour | None = None
    begins_hour: tuple[str, int] | None = None
    tally: Tally = NO_TALLY
    late_credits: Mapping[str, tuple[int, int]] = NO_LATE_CREDITS
    moments: Mapping[int, Moments] = NO_MOMENTS


class WriteContext(NamedTuple):
    """What holds for one attempt: the item, the stamp and the write id.

    ``usage_ms`` is how long usage is kept; with 0 hours are not turned. ``tally`` counts acquires
    of this client that were rejected or have waited, and that the bucket has not counted yet.
    ``is_turning`` says that a write of this client that turns the hour is under way.
    """

    shard_id: ShardId
    now_ms: int
    write_id: str
    usage_ms: int = DEFAULT_USAGE_MS
    tally: Tally = NO_TALLY
    is_turning: bool = False


def charge(
    known: KnownBucket,
    bucket: StoredBucket,
    moves: list[Move],
    change: BucketChange,
    in_force: InForce,
    context: WriteContext,
) -> Attempt:
    """Write one charge, with moves that were planned for it. This is the usual write.

    A reservation may leave a debt, which the TTL has to outlast.
    """
    reserves = change.until_ms is not None
    return _balance_write(
        known,
        bucket,
        moves,
        in_force,
        context,
        admitted=change.admitted,
        positions=SINGLE_RESERVATION if reserves else SINGLE_CHARGE,
        net_milli=change.amounts_milli,
        through_milli=through_children((change,)) if change.through_child else NO_AMOUNTS,
        owes=reserves,
    )


def group(
    known: KnownBucket,
    bucket: StoredBucket,
    wanted: Totals,
    in_force: InForce,
    context: WriteContext,
    *,
    admitted: int,
    positions: Sequence[int],
    through_milli: Mapping[str, int] = NO_AMOUNTS,
    slots: PlannedSlots | None = None,
) -> Attempt:
    """Write charges, debts and credits of several callers, all or none."""
    of_slots: list[Move] = []
    if slots is not None:
        of_slots = slots.moves(wanted)
        wanted = {key: each for key, each in wanted.items() if not slots.is_slots(key)}
    net = {key: each.net_milli for key, each in wanted.items()}
    only_gives = not of_slots and not any(
        each.taken_milli or each.asked for each in wanted.values()
    )
    if (
        slots is None
        and only_gives
        and not through_milli
        and context.tally.is_empty
        and not is_over(bucket, context.now_ms, context.usage_ms)
    ):
        return credit(wanted, context, admitted=admitted, positions=positions, net_milli=net)
    limits, now_ms = bucket.image.limits, context.now_ms
    others, age_ms = known.others_milli_per_s, now_ms - known.at_ms
    moves = [
        guessed_move(key, limits[key], each, now_ms, age_ms, others.get(key, 0))
        for key, each in wanted.items()
    ]
    gives = only_gives or any(each.returned_milli for each in wanted.values())
    return _balance_write(
        known,
        bucket,
        moves + of_slots,
        in_force,
        context,
        admitted=admitted,
        positions=positions,
        net_milli=net,
        through_milli=through_milli,
        owes=any(each.owed_milli or each.needed_milli is not None for each in wanted.values()),
        gives=gives or (slots is not None and slots.gives),
        slots=slots,
    )


def _balance_write(
    known: KnownBucket,
    bucket: StoredBucket,
    moves: list[Move],
    in_force: InForce,
    context: WriteContext,
    *,
    admitted: int,
    positions: Sequence[int],
    net_milli: Mapping[str, int],
    through_milli: Mapping[str, int],
    owes: bool = False,
    gives: bool = False,
    slots: PlannedSlots | None = None,
) -> Attempt:
    now_ms, write_id, usage_ms = context.now_ms, context.write_id, context.usage_ms
    image, hours, tally = bucket.image, bucket.hours, context.tally
    until = in_force.extended_ttl(image.expires_ms, now_ms, usage_ms)
    if owes or not in_force.outlasts_refill(until, len(image.limits), now_ms):
        until = expires_ms(after(image, moves), in_force, now_ms, usage_ms)
    counts, store_first, begins_hour = None, None, None
    hour = now_ms // HOUR_MS
    if hour <= hours.hour:  # it is not over, in all but one write an hour
        if through_milli or not tally.is_empty:
            counted = Counted(admitted, tally, through_milli)
            counts = counts_of_running_hour(bucket, hour, counted)
            admitted = 0
    else:
        counts = _counts(known, bucket, context, Counted(admitted, tally, through_milli))
        write_id, store_first, begins_hour = turn_of(bucket, counts, write_id)
        admitted = 0
    trailer = WriteTrailer(
        write_id=write_id, admitted=admitted, expires_ms=until, keeps=until == image.expires_ms
    )
    version = 0 if image.config_version else in_force.governing_version
    write = TemplatedCharge(context.shard_id, moves, trailer, bucket, version, counts)
    if slots is not None:
        write.slot_writes = slots.writes()
    if image.paused_until_ms is not None and not is_paused(image, now_ms):
        write.ends_pause = True
    clamped = _clamped(moves)
    return Attempt(
        write=write,
        write_id=write_id,
        previous_write_id=None if gives else bucket.write_id,
        guarded_retry=None if gives else write.guarded,
        structural=False,
        plain_moves=len(moves) - clamped,
        clamp_moves=clamped,
        applied_positions=positions,
        net_milli=net_milli,
        store_first=store_first,
        begins_hour=begins_hour,
        tally=tally,
        late_credits=NO_LATE_CREDITS,
        moments=NO_MOMENTS if slots is None else slots.moments,
    )


def _counts(
    known: KnownBucket,
    bucket: StoredBucket,
    context: WriteContext,
    counted: Counted,
) -> HourCounts:
    """Return what a write counts after the end of the hour that the bucket counts for."""
    return hour_counts(
        known,
        bucket,
        context.now_ms,
        usage_ms=context.usage_ms,
        is_turning=context.is_turning,
        counted=counted,
    )


def _clamped(moves: list[Move]) -> int:
    return sum(move.put is not None for move in moves)


def credit(
    wanted: Totals,
    context: WriteContext,
    *,
    admitted: int,
    positions: Sequence[int],
    net_milli: Mapping[str, int] = NO_AMOUNTS,
) -> Attempt:
    """Write credits alone: balances only grow, so nothing has to be known of the bucket."""
    shard_id, now_ms, write_id = context.shard_id, context.now_ms, context.write_id
    moves = [move(key, NO_RATE, each, now_ms, overflowing=False) for key, each in wanted.items()]
    update = bucket_update(bucket_item.key(*shard_id), moves, WriteTrailer(write_id, admitted))
    for each in moves:
        require_limit(update, each.key)
    if not moves:
        require_bucket(update)
    return Attempt(update, write_id, applied_positions=positions, net_milli=net_milli)


def first(
    in_force: InForce,
    wanted: Totals,
    link: EntityLink,
    context: WriteContext,
    *,
    admitted: int,
    positions: Sequence[int],
    through_milli: Mapping[str, int] = NO_AMOUNTS,
    slots: PlannedSlots | None = None,
) -> Attempt:
    """Create the bucket, or take from it if it exists and is full: both have the same result."""
    shard_id, now_ms, tally = context.shard_id, context.now_ms, context.tally
    write_id, hour = TURN_MARK + context.write_id, now_ms // HOUR_MS
    origin = new_origin(shard_id.number)
    rates = dict(zip(in_force.keys, in_force.rates, strict=True))
    moves = [first_move(key, rate, wanted.get(key, NOTHING), now_ms) for key, rate in rates.items()]
    full = full_bucket(in_force, now_ms)
    until = expires_ms(after(full, moves), in_force, now_ms, context.usage_ms)
    trailer = WriteTrailer(write_id, 0, until, keeps=False)
    asked = encode_asked(tally.asked, bucket_item.slots_for(rates))
    new_bucket = NewBucket(
        bucket_item.key(*shard_id),
        bucket_item.index_keys(*shard_id),
        link,
        rates,
        in_force.governing_version,
        now_ms,
        HourCounts(HourForm.COUNT, hour, admitted, tally, through_milli, None, origin, asked),
        () if slots is None else slots.writes(),
    )

    def only_if_absent() -> UpdateExpression:
        # Another origin: the first write may have created an item that was removed since.
        counts = new_bucket.counts._replace(origin=new_origin(shard_id.number))
        again = new_bucket._replace(counts=counts)
        return first_write(again, moves, trailer, only_if_absent=True)

    write = first_write(new_bucket, moves, trailer)
    return Attempt(
        write,
        write_id,
        None,
        only_if_absent,
        applied_positions=positions,
        begins_hour=(origin, hour) if context.usage_ms else None,
        tally=tally,
        moments=NO_MOMENTS if slots is None else slots.moments,
    )


def rebase(
    bucket: StoredBucket, target: BucketImage, in_force: InForce, context: WriteContext
) -> Attempt:
    """Bring the bucket's limits to those of ``target``; levels stay, and a pause that is not over.

    ``in_force`` are the limits of the whole bucket, ``target`` is at the shard's own rates.
    """
    shard_id, now_ms, write_id, usage_ms = context[:4]
    if not is_paused(target, now_ms):
        target = target._replace(paused_until_ms=None)
    counts, turn = None, Turn(write_id)
    if is_over(bucket, now_ms, usage_ms):
        counts = hour_counts(FreshBucket(bucket), bucket, now_ms, usage_ms=usage_ms)
        turn = turn_of(bucket, counts, write_id)
        target = without_drops(bucket.image, target)
    else:  # of two limits that are dropped at once, one could not inherit from the other
        allowed = 1 if bucket.hours.has_children else len(bucket.image.limits)
        target = without_drops(bucket.image, target, allowed=allowed)
        if bucket.image.limits.keys() - target.limits.keys():
            turn = turn._replace(store_first=bucket.finished)
    until = expires_ms(target, in_force.at(bucket.shard), now_ms, usage_ms)
    write_id = turn.write_id + STRUCTURAL
    trailer = WriteTrailer(write_id, 0, until, until == bucket.image.expires_ms)
    update = structural_write(
        bucket_item.key(*shard_id),
        bucket,
        target,
        rates=_whole_rates(bucket, target, in_force),
        trailer=trailer,
        now_ms=now_ms,
        counts=counts,
    )
    # It counts the generation up, so that a repetition is refused if the first one was applied.
    return Attempt(
        update,
        write_id,
        bucket.write_id,
        lambda: update,
        structural=True,
        store_first=turn.store_first,
        begins_hour=turn.begins_hour,
    )


def _whole_rates(bucket: StoredBucket, target: BucketImage, in_force: InForce) -> dict[str, Rate]:
    """Return what is stored of limits that stay as they are, of others what is in force."""
    before, stored = bucket.image.limits, bucket.whole_rates
    return {
        key: stored[key]
        if key in before and before[key].rate == state.rate
        else in_force.rate_of(key)
        for key, state in target.limits.items()
    }
