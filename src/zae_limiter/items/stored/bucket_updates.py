"""UpdateItem requests for a bucket: decided elsewhere, rendered here, each with its condition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage, LimitState, Rate, full_balance, is_quota
from zae_limiter.admission.moves import Move, rebase_move
from zae_limiter.admission.quotas import (
    HoldWrite,
    QuotaMove,
    has_same_windows,
    is_same_quota,
    rebase_quota,
)
from zae_limiter.admission.rebase import namesake
from zae_limiter.admission.slots import SlotWrite
from zae_limiter.admission.thresholds import EXHAUSTED, Mark
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import (
    ABSENT,
    AT_LEAST,
    COPY,
    DIFFERS,
    EQUAL,
    LESS_THAN,
    MORE_THAN,
    NO_ITEM,
    SET,
    Clause,
    ItemUpdate,
    ItemWrite,
)
from zae_limiter.items.stored.usage import clauses
from zae_limiter.items.stored.usage.clauses import HourCounts
from zae_limiter.items.stored.usage.hours import (
    ADMITTED,
    CONCURRENT,
    HOUR,
    ORIGIN,
    REJECTIONS,
    decode_rejections,
    encode_rejections,
    finished_attributes,
)


@dataclass(slots=True)
class WriteTrailer:
    """The attributes that every write leaves on the item: its id, its admissions, the TTL.

    A write with ``HourCounts`` of its own counts admissions there. ``keeps`` leaves the TTL as it
    is; without it, ``expires_ms`` None removes the TTL. ``keeps_ids`` says that the item has room
    for the ids of earlier writes.
    """

    write_id: str
    admitted: int = 0
    expires_ms: int | None = None
    keeps: bool = True
    keeps_ids: bool = True

    @classmethod
    def to(
        cls,
        bucket: stored.StoredBucket,
        write_id: str,
        admitted: int = 0,
        expires_ms: int | None = None,
        keeps: bool = True,
    ) -> WriteTrailer:
        """Return the trailer of a write to a bucket as it was seen."""
        keeps_ids = stored.keeps_earlier_ids(bucket.image.limits)
        return cls(write_id, admitted, expires_ms, keeps, keeps_ids)


def balance_update(
    key: Key,
    moves: Sequence[Move],
    trailer: WriteTrailer,
    bucket: stored.StoredBucket,
    *,
    version: int = 0,
    counts: HourCounts | None = None,
    slot_writes: Sequence[SlotWrite] = (),
    ends_pause: bool = False,
    hold_writes: Sequence[HoldWrite] = (),
) -> ItemUpdate:
    """Make moves under the condition that the bucket still has the shards and limits of ``bucket``.

    ``version`` becomes the bucket's configuration version; 0 leaves the version alone. ``counts``
    is None for a write that counts nothing by the hour except its moves and its trailer.
    ``ends_pause`` removes a pause which is over.
    """
    update = bucket_update(key, moves, trailer)
    # The attributes of held slots and amounts change with time, and there is one end of a pause.
    update.is_usual = not (slot_writes or hold_writes or ends_pause)
    require_same(update, bucket)
    if version:
        update.set(stored.VERSION, version)
    if ends_pause:
        bucket = end_pause(update, bucket)
    if counts is not None:
        clauses.count(update, bucket, counts)
    if slot_writes:
        write_slots(update, slot_writes, bucket.hours.indexes)
        if any(write.removed for write in slot_writes):
            require_life(update, bucket)
    if hold_writes:
        write_holds(update, hold_writes, bucket.hours.indexes)
        if any(write.removed for write in hold_writes):
            require_life(update, bucket)
    return update


def bucket_update(key: Key, moves: Sequence[Move], trailer: WriteTrailer) -> ItemUpdate:
    """Return the part that all writes share: balances with their bounds, counters, write id."""
    update = ItemUpdate(key)
    for each in moves:
        _move(update, each)
    update.clauses += _leave_id(update, trailer)
    update.add(stored.WRITES, 1)
    if trailer.admitted:
        update.add(ADMITTED, trailer.admitted)
    if not trailer.keeps:
        _expiry(update, trailer.expires_ms)
    return update


def _leave_id(update: ItemUpdate, trailer: WriteTrailer) -> Sequence[Clause]:
    """Leave the id of the write on the item; return the conditions that it was not there before."""
    effects, conditions = _id_clauses(update.give(trailer.write_id), trailer.keeps_ids)
    update.clauses += effects
    return conditions


@cache
def _id_clauses(place: int, keeps_ids: bool) -> tuple[Sequence[Clause], Sequence[Clause]]:
    """Return the clauses of an id; every write has them.

    The ids of earlier writes move on by one, so that a write which is delivered again is refused
    although others came between. A new item has the same id everywhere.
    """
    names = (stored.WRITE_ID, *(stored.EARLIER_WRITE_IDS if keeps_ids else ()))
    moved = [(COPY, name, newer, place) for newer, name in pairwise(names)]
    return [(SET, stored.WRITE_ID, place), *moved], [(DIFFERS, name, place) for name in names]


def require_same(write: ItemWrite, bucket: stored.StoredBucket) -> None:
    """Require the shard and the limits of ``bucket``: a balance is relative to its rate."""
    write.equal(stored.SHARDS, bucket.shard.n)
    write.equal(stored.DIGEST, bucket.digest)


def set_pause(update: ItemUpdate, bucket: stored.StoredBucket, paused_until_ms: int | None) -> None:
    """Pause a bucket, or end its pause (None); clients that do not know of it notice the digest."""
    update.set(stored.DIGEST, stored.paused_digest(bucket.digest, paused_until_ms))
    _set_not_before(update, paused_until_ms)


def end_pause(update: ItemUpdate, bucket: stored.StoredBucket) -> stored.StoredBucket:
    """Remove a pause that is over, along with another write; return the bucket without it."""
    set_pause(update, bucket, None)
    return replace(bucket, image=bucket.image._replace(paused_until_ms=None))


def _set_not_before(update: ItemUpdate, paused_until_ms: int | None) -> None:
    if paused_until_ms is None:
        update.remove(stored.NOT_BEFORE)
    else:
        update.set(stored.NOT_BEFORE, paused_until_ms)


def require_generation(update: ItemUpdate, bucket: stored.StoredBucket) -> None:
    """Require and count up the generation, in writes that change more than balances."""
    update.equal(stored.GENERATION, bucket.generation)
    update.add(stored.GENERATION, 1)


def only_after(update: ItemUpdate, write_id: str) -> ItemUpdate:
    """Return an update under the condition that no write came after the one with this id."""
    return update.but(EQUAL, stored.WRITE_ID, write_id)


def require_rate(update: ItemUpdate, key: str) -> None:
    """Require that the item has a limit, and that it has become neither slots nor a quota.

    The parameters of a rate begin with a digit, and those of the others with a letter.
    """
    update.less_than(stored.PARAMETERS + key, CONCURRENT)


def _move(update: ItemUpdate, move: Move) -> None:
    balance = stored.BALANCE + move.key
    if move.low is not None:  # enough tokens
        update.at_least(balance, move.low)
    if move.high is not None:  # not overflowing
        update.at_most(balance, move.high)
    if move.put is not None:
        update.set(balance, move.put)
    elif move.add:
        update.add(balance, move.add)
    if move.consumed_milli:
        update.add(stored.CONSUMED + move.key, move.consumed_milli)


def require_life(update: ItemUpdate, bucket: stored.StoredBucket) -> None:
    """Require that the item was not deleted and created again since ``bucket`` was seen."""
    update.equal(ORIGIN, bucket.hours.origin)


def _exchange(update: ItemUpdate, name: str, removed: int, added: int) -> None:
    """Take from what is held under a name, which must be there, and add to it."""
    if removed:
        update.at_least(name, removed)
    if added != removed:
        update.add(name, added - removed)


def write_slots(
    update: ItemUpdate, writes: Sequence[SlotWrite], indexes: Mapping[str, int]
) -> None:
    """Change the slots that are held, if they are as the write assumes."""
    for write in writes:
        index = indexes[write.key]
        for moment, seen in write.expired.items():
            name = stored.slot_attribute(index, moment)
            update.equal(name, seen)
            update.remove(name)
        for moment in sorted(write.removed.keys() | write.added.keys()):
            name = stored.slot_attribute(index, moment)
            _exchange(update, name, write.removed.get(moment, 0), write.added.get(moment, 0))


def write_holds(
    update: ItemUpdate, writes: Sequence[HoldWrite], indexes: Mapping[str, int]
) -> None:
    """Change the amounts that calls hold of quotas, if they are as the write assumes."""
    for write in writes:
        index = indexes[write.key]
        for hold, seen in write.swept.items():
            name = stored.hold_attribute(index, hold)
            update.equal(name, seen)
            if hold in write.put:  # DynamoDB does not remove and add one attribute in one write
                update.set(name, write.put[hold])
            else:
                update.remove(name)
        for hold in sorted(write.removed.keys() | write.added.keys()):
            name = stored.hold_attribute(index, hold)
            _exchange(update, name, write.removed.get(hold, 0), write.added.get(hold, 0))
        if write.untopped is not None:
            topped = f"{stored.TOPPED}{index}"
            update.any_of([(ABSENT, topped)], [update.term(MORE_THAN, topped, write.untopped)])
        if write.topped is not None:
            update.set(f"{stored.TOPPED}{index}", write.topped)
        elif write.forgets:
            update.remove(f"{stored.TOPPED}{index}")
        if write.marked is not None:
            update.set(f"{stored.MARKED}{index}", write.marked)
        elif write.forgets or write.remarks:
            update.remove(f"{stored.MARKED}{index}")
        if write.forgets or write.remarks:
            update.remove(f"{stored.EXHAUSTED}{index}")


def mark_write(key: Key, bucket: stored.StoredBucket, mark: Mark) -> ItemUpdate:
    """Render the mark of a threshold or of an exhausted quota.

    The level is still as low as the mark assumes, and nobody has made it before.

    Like a later TTL, it leaves the id and the count of writes as they are: a client that looks for
    its own lost write finds it.
    """
    update, balance = ItemUpdate(key), stored.BALANCE + mark.key
    letter = stored.EXHAUSTED if mark.position == EXHAUSTED else stored.MARKED
    name = f"{letter}{bucket.hours.indexes[mark.key]}"
    update.equal(stored.DIGEST, bucket.digest)  # the same amount and thresholds
    update.at_least(balance, mark.low)
    update.at_most(balance, mark.high)
    update.any_of([(ABSENT, name)], [update.term(LESS_THAN, name, mark.value)])
    update.set(name, mark.value)
    return update


def _expiry(update: ItemUpdate, expires_ms: int | None) -> None:
    if expires_ms is None:
        update.remove(stored.TTL)
    else:
        update.set(stored.TTL, stored.ttl_seconds(expires_ms))


class NewBucket(NamedTuple):
    """The constant attributes of a bucket that does not exist yet, and its first counts."""

    key: Key
    index_keys: Item
    link: stored.EntityLink
    rates: Mapping[str, Rate]
    version: int
    generation: int  # the stamp, so that it exceeds that of a deleted bucket of the same key
    counts: HourCounts
    slot_writes: Sequence[SlotWrite] = ()
    paused_until_ms: int | None = None
    hold_writes: Sequence[HoldWrite] = ()


def first_write(
    new_bucket: NewBucket,
    moves: Sequence[Move],
    trailer: WriteTrailer,
    *,
    only_if_absent: bool = False,
) -> ItemUpdate:
    """Create a bucket, or take from one that is full: an absent bucket is a full one.

    ``moves`` are those of ``first_move``, one for each limit in force.
    """
    update, counts = ItemUpdate(new_bucket.key), new_bucket.counts
    indexes = stored.limit_indexes(new_bucket.rates)
    digest = stored.digest_of(new_bucket.rates, indexes, new_bucket.paused_until_ms)
    is_no_repetition = _leave_id(update, trailer)
    if only_if_absent:
        update.no_item()
    else:
        is_full = [*_is_full(update, moves, digest, counts.added.hour), *is_no_repetition]
        update.any_of([(NO_ITEM,)], is_full)
    for each in moves:
        assert each.put is not None
        update.set(stored.BALANCE + each.key, each.put)
        update.add(stored.CONSUMED + each.key, each.consumed_milli)
        packed = stored.pack(new_bucket.rates[each.key], indexes[each.key])
        update.set_if_absent(stored.PARAMETERS + each.key, packed)
    update.set_all({**new_bucket.index_keys, **stored.link_attributes(new_bucket.link)})
    update.set(stored.SHARDS, stored.UNSHARDED)
    update.set(stored.DIGEST, digest)
    update.set_if_absent(stored.VERSION, new_bucket.version)
    update.set_if_absent(stored.GENERATION, new_bucket.generation)
    update.set_if_absent(ORIGIN, counts.origin)
    update.set_if_absent(HOUR, counts.added.hour)
    update.add(stored.WRITES, 1)
    clauses.count_in_hour(update, counts, indexes)
    write_slots(update, new_bucket.slot_writes, indexes)
    write_holds(update, new_bucket.hold_writes, indexes)
    if new_bucket.paused_until_ms is not None:
        _set_not_before(update, new_bucket.paused_until_ms)
    _expiry(update, trailer.expires_ms)
    return update


def _is_full(update: ItemUpdate, moves: Sequence[Move], digest: str, hour: int) -> list[Clause]:
    """Return the conditions that every limit is full and the item's hour not over.

    The digest contains the indexes of the limits, so the item has those that this write uses.
    """
    parts = [
        update.term(AT_LEAST, HOUR, hour),
        update.term(EQUAL, stored.SHARDS, stored.UNSHARDED),
        update.term(EQUAL, stored.DIGEST, digest),
    ]
    for each in moves:
        assert each.low is not None
        parts.append(update.term(AT_LEAST, stored.BALANCE + each.key, each.low))
    return parts


def structural_write(
    key: Key,
    bucket: stored.StoredBucket,
    target: BucketImage,
    *,
    rates: Mapping[str, Rate],
    trailer: WriteTrailer,
    now_ms: int,
    counts: HourCounts | None = None,
) -> ItemUpdate:
    """Bring the limits of a bucket to those of ``target``: re-based, added or dropped.

    Levels are kept as they are at the write, not as they were when ``bucket`` was read. A pause
    becomes that of ``target``.
    ``rates`` are those of the whole bucket, ``target`` is at the shard's own. A write that turns
    the hour drops no limit.
    """
    update = bucket_update(key, _rebase_moves(bucket.image, target, now_ms), trailer)
    require_same(update, bucket)
    require_generation(update, bucket)
    before, indexes = bucket.image.limits, _indexes_after(bucket, target)
    for name, state in target.limits.items():
        old = before.get(name)
        if old is None:
            update.set(stored.BALANCE + name, state.balance_milli)
            update.set(stored.CONSUMED + name, state.consumed_milli)
        elif state.consumed_milli != old.consumed_milli:
            update.add(stored.CONSUMED + name, state.consumed_milli - old.consumed_milli)
        if old is None or old.rate != state.rate:
            packed = stored.pack(rates[name], indexes[name], state.number)
            update.set(stored.PARAMETERS + name, packed)
    dropped = before.keys() - target.limits.keys()
    for name in sorted(dropped):
        _drop(update, name, before[name], now_ms)
    if dropped:
        _fold_hours(update, bucket, target, dropped, indexes)
    if bucket.image.holds is not None:
        _forget_slots(update, bucket, target, indexes)
    quotas = _rebased_quotas(bucket.image, target, now_ms)
    write_holds(update, [each.holds for each in quotas], indexes)
    _forget_quotas(update, bucket, target, indexes)
    paused_until_ms = target.paused_until_ms
    numbers = {name: state.number for name, state in target.limits.items()}
    update.set(stored.DIGEST, stored.digest_of(rates, indexes, paused_until_ms, numbers))
    if paused_until_ms != bucket.image.paused_until_ms:
        _set_not_before(update, paused_until_ms)
    update.set(stored.VERSION, target.config_version)
    if not trailer.keeps_ids:  # those of the time when the bucket had fewer limits
        for name in stored.EARLIER_WRITE_IDS:
            update.remove(name)
    if counts is not None:
        clauses.count(update, bucket, counts)
    return update


def _indexes_after(bucket: stored.StoredBucket, target: BucketImage) -> dict[str, int]:
    """Return the indexes of all limits, dropped ones included: this write uses both."""
    return stored.limit_indexes({**bucket.image.limits, **target.limits}, bucket.hours.indexes)


def _fold_hours(
    update: ItemUpdate,
    bucket: stored.StoredBucket,
    target: BucketImage,
    dropped: Collection[str],
    indexes: Mapping[str, int],
) -> None:
    """Count the usage of dropped limits in this hour for other limits of their name, if any.

    A dropped limit without such an heir has counted nothing. The hour must still run. A finished
    hour has been stored by now, and is removed: the indexes of dropped limits may be used again.
    """
    hours = bucket.hours
    update.equal(ORIGIN, hours.origin)
    update.equal(HOUR, hours.hour)
    clauses.require_stored(update, None if hours.finished is None else hours.finished.hour)
    if hours.finished is not None:
        for name in finished_attributes(hours):
            update.remove(name)
    for name in sorted(dropped):
        heir = namesake(name, target.limits)
        clauses.free_index(
            update,
            indexes[name],
            None if heir is None else indexes[heir],
            has_children=hours.has_children,
        )
    if bucket.rejections:  # an index may get another limit
        details = decode_rejections(bucket.rejections, hours.indexes)
        kept = {name: index for name, index in indexes.items() if name in target.limits}
        update.set(REJECTIONS, encode_rejections(details, kept))


def _forget_slots(
    update: ItemUpdate,
    bucket: stored.StoredBucket,
    target: BucketImage,
    indexes: Mapping[str, int],
) -> None:
    """Remove the held slots of limits that have no slots any more.

    If such a limit gets slots again, these would be counted as free once they have expired. No
    write may have come since: it could have added slots.
    """
    kept = target.holds or {}
    for name, moments in (bucket.image.holds or {}).items():
        if name not in kept:
            update.equal(stored.WRITES, bucket.image.writes)
            for moment in moments:
                update.remove(stored.slot_attribute(indexes[name], moment))


def _rebase_moves(before: BucketImage, target: BucketImage, now_ms: int) -> list[Move]:
    moves = [each.move for each in _rebased_quotas(before, target, now_ms)]
    for name, state in target.limits.items():
        old = before.limits.get(name)
        if old is None or old.rate == state.rate or is_same_quota(old.rate, state.rate):
            continue
        if is_quota(old.rate) or is_quota(state.rate):  # another kind of limit begins full
            moves.append(Move(name, None, None, 0, state.balance_milli))
        else:
            moves.append(rebase_move(name, old, state.rate, now_ms))
    return moves


def _rebased_quotas(before: BucketImage, target: BucketImage, now_ms: int) -> list[QuotaMove]:
    """Return the changes of quotas that get another amount or calendar.

    Their usage is that of ``target``, as for all limits.
    """
    planned = []
    for name, state in target.limits.items():
        old = before.limits.get(name)
        if old is None or old.rate == state.rate or not is_same_quota(old.rate, state.rate):
            continue
        rebased = rebase_quota(name, old, state.rate, now_ms)
        planned.append(rebased._replace(move=replace(rebased.move, consumed_milli=0)))
    return planned


def _forget_quotas(
    update: ItemUpdate,
    bucket: stored.StoredBucket,
    target: BucketImage,
    indexes: Mapping[str, int],
) -> None:
    """Remove what calls hold of lives of quotas that end, and of quotas that nobody needs.

    No write may have come since: it could have added holds. Top-ups and marks are removed of quotas
    that are dropped or become another kind.
    """
    for name, state in bucket.image.limits.items():
        after = target.limits.get(name)
        if state.quota is None:
            continue
        goes_on = after is not None and has_same_windows(state.rate, after.rate)
        left = after.quota.holds if after is not None and after.quota is not None else {}
        if goes_on and len(left) == len(state.quota.holds):
            continue
        update.equal(stored.WRITES, bucket.image.writes)
        if after is not None and after.rate != state.rate and is_same_quota(state.rate, after.rate):
            continue  # see _rebased_quotas
        for hold in state.quota.holds:
            if hold not in left:
                update.remove(stored.hold_attribute(indexes[name], hold))
        if not goes_on:
            update.remove(f"{stored.TOPPED}{indexes[name]}")
            update.remove(f"{stored.MARKED}{indexes[name]}")
            update.remove(f"{stored.EXHAUSTED}{indexes[name]}")


def _drop(update: ItemUpdate, name: str, state: LimitState, now_ms: int) -> None:
    """Drop a limit that is still full (no different from none) and has counted nothing since."""
    if state.quota is not None:  # its window has ended long ago
        update.equal(stored.BALANCE + name, state.balance_milli)
    else:
        update.at_least(stored.BALANCE + name, full_balance(state.rate, now_ms))
    update.equal(stored.CONSUMED + name, state.consumed_milli)
    for prefix in (stored.BALANCE, stored.CONSUMED, stored.PARAMETERS, stored.MERGED):
        update.remove(prefix + name)


def later_expiry(key: Key, expires_ms: int | None) -> ItemUpdate:
    """Move the TTL on, unless it is late enough or the bucket has been split."""
    update = ItemUpdate(key)
    if expires_ms is None:
        update.present(stored.TTL)
    else:
        update.less_than(stored.TTL, stored.ttl_seconds(expires_ms))
    update.equal(stored.SHARDS, stored.UNSHARDED)
    _expiry(update, expires_ms)
    return update
