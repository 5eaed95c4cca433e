"""Writes to several shards of a bucket: gathered charges, spilled credits, shared debts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from zae_limiter._async.engines.items.backoff import BoundedBackoff
from zae_limiter._async.engines.items.buckets.conditional_write import (
    FIRST_SHARE,
    ConditionalWriter,
)
from zae_limiter._async.engines.items.buckets.group_commit import GroupCommit
from zae_limiter._async.engines.items.port import ItemStore
from zae_limiter._async.engines.items.sharding.shard_reader import ReadShard, ShardReader
from zae_limiter._async.engines.items.usage.writing import UsageRows
from zae_limiter.admission.decide import Decision, decide
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.moves import Move, Seen, added_move, after, surplus_milli
from zae_limiter.admission.rebase import has_limits
from zae_limiter.admission.request import BucketChange, Charge
from zae_limiter.admission.shards.spreading import gather, place_what_fits, repayment, taking
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.admission.slots import swept
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable, ZAELimiterError
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.outcomes import (
    Applied,
    Outcome,
    Rejected,
    ShardMerged,
)
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.buckets.writes import PlannedWrite
from zae_limiter.items.counters import Counters
from zae_limiter.items.sharding import transactions
from zae_limiter.items.sharding.known_shards import KnownShards, rejection
from zae_limiter.items.sharding.transactions import Gathering, ShardMoves
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.bucket import decode, new_write_id, shows_write
from zae_limiter.items.stored.bucket_updates import WriteTrailer, bucket_update, require_same
from zae_limiter.items.stored.keys import BucketId, Key
from zae_limiter.items.stored.update import ItemWrite
from zae_limiter.items.stored.usage.hours import TURN_MARK
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.store_errors import (
    ConditionFailed,
    Conflict,
    NoAnswer,
    NotSent,
    ServerFault,
    Throttled,
)

MAX_SPILLS = 12  # rounds of finding room; each one means that another client came first
JUST_SEEN = Seen(0, {})  # the charge was checked on all shards together, not on the first alone
CROWDED = "too many clients write to this bucket at once; try again"

logger = quiet_logger(__name__)


class MultiShardWriter:
    """Tokens move between shards only together with the change that needs them."""

    def __init__(
        self,
        store: ItemStore,
        writer: ConditionalWriter,
        group_commit: GroupCommit,
        reader: ShardReader,
        *,
        cache: BucketCache,
        counters: Counters,
        usage_rows: UsageRows,
    ) -> None:
        self._store = store
        self._writer = writer
        self._group_commit = group_commit
        self._reader = reader
        self._cache = cache
        self._counters = counters
        self._usage_rows = usage_rows

    async def charge(self, pending: PendingChange) -> Outcome:
        """Gather a charge that no shard holds by itself."""
        change, backoff = pending.change, BoundedBackoff(pending.deadline)
        while True:
            shards = await self._read_all(pending)
            outdated = _with_other_limits(shards, change)
            if outdated or not shards:
                problem = await self.update_limits(pending, outdated or [0])
                if problem is not None:
                    return problem
            else:
                now_ms = pending.clock()
                images = {shard: swept(each.bucket.image, now_ms) for shard, each in shards.items()}
                spread = gather(images, change.amounts_milli, now_ms)
                if spread is None:
                    return rejection(images, change, now_ms, gathers=True)
                moves = {
                    shard: taking(images[shard], amounts, now_ms)
                    for shard, amounts in spread.items()
                }
                parts, outcome = _shard_moves(shards, moves), Applied(None, is_whole=False)
                if change.in_force.held_keys:
                    parts, taken = _with_holds(parts, shards, change, now_ms)
                    outcome.slots, outcome.quota_holds = taken.taken_slots(0), taken.taken_quotas(0)
                if await self._transact(pending, parts, now_ms, of_charge=change):
                    return outcome
            if not await backoff.pause():
                raise RateLimiterUnavailable(CROWDED)

    async def spill(self, pending: PendingChange, amounts_milli: Mapping[str, int]) -> None:
        """Give to the other shards the part of a credit that one had no room for.

        If no shard has room, it is lost, as in a full bucket. Raises no outage.
        """
        left, problem = dict(amounts_milli), None
        try:
            await self._give_to_others(pending, left)
        except ZAELimiterError as error:
            problem = error
        if left:
            self._counters.add(lost_refunds=1)
            logger.error(
                "could not refund %r to %r on %r",
                left,
                pending.bucket_id.entity_id,
                pending.bucket_id.resource,
                exc_info=problem,
            )

    async def repay(self, pending: PendingChange) -> None:
        """Let the other shards repay the debt of one."""
        backoff = BoundedBackoff(pending.deadline)
        while True:
            shards = await self._read_all(pending)
            images = {shard: each.bucket.image for shard, each in shards.items()}
            now_ms = pending.clock()
            moves = repayment(images, pending.shard_id.number, now_ms)
            if not moves or await self._transact(pending, _shard_moves(shards, moves), now_ms):
                return
            if not await backoff.pause():
                raise RateLimiterUnavailable(CROWDED)

    async def update_limits(self, pending: PendingChange, numbers: Iterable[int]) -> Outcome | None:
        """Bring shards to the limits in force by charging them nothing.

        Return the outcome that prevents it, if any.
        """
        change = pending.change
        assert isinstance(change, Charge), "only a charge brings limits"
        amounts = dict.fromkeys(change.amounts_milli, 0)
        nothing = replace(change, amounts_milli=amounts, through_milli=None, admitted=0)
        for number in numbers:
            update = PendingChange(
                pending.bucket_id, nothing, pending.clock, pending.deadline, is_counted=False
            )
            update.redirect(number)
            outcome = await self._group_commit.submit(update)
            if not isinstance(outcome, Applied | Rejected | ShardMerged):
                return outcome
        return None

    async def _read_all(self, pending: PendingChange) -> dict[Shard, ReadShard]:
        return await self._reader.read_all(pending.bucket_id, pending.clock, pending.deadline)

    async def _give_to_others(self, pending: PendingChange, left: dict[str, int]) -> None:
        """Credit shards that have room, until nothing is ``left``, or no time.

        Shards are not read at one moment: that none has room is certain only if no write came
        between two reads.
        """
        backoff = BoundedBackoff(pending.deadline)
        for _ in range(MAX_SPILLS):
            now_ms, shards = pending.clock(), KnownShards.of(self._cache, pending.bucket_id)
            images = shards.images(pending.change.in_force, now_ms)
            placed = place_what_fits(images, left, now_ms)
            if not placed.spread and not await self._have_changed(pending, shards):
                left.clear()
            for shard, amounts in placed.spread.items():
                returned = await self._credit(pending, shard, amounts)
                for key, amount in amounts.items():
                    left[key] -= amount - returned.get(key, 0)
                    if not left[key]:
                        del left[key]
            if not left or not await backoff.pause():
                return

    async def _have_changed(self, pending: PendingChange, shards: KnownShards) -> bool:
        """Read all shards; False if no write came since they were cached."""
        bucket_id = pending.bucket_id
        await self._reader.refresh(bucket_id, shards.numbers(), pending.clock, pending.deadline)
        return KnownShards.of(self._cache, bucket_id).write_ids() != shards.write_ids()

    async def _credit(
        self, pending: PendingChange, shard: Shard, amounts: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Credit one shard with tokens of another; return the amounts that it has no room for."""
        shard_id = pending.bucket_id.shard(shard.number)
        entry = self._cache.get(shard_id)
        if entry is None or entry.bucket.shard != shard:
            return amounts
        now_ms = pending.clock()
        write_id = new_write_id(now_ms)
        moves = [added_move(key, amount) for key, amount in amounts.items()]
        trailer = WriteTrailer.to(entry.bucket, write_id)
        update = bucket_update(keys.bucket(*shard_id), moves, trailer)
        require_same(update, entry.bucket)
        try:
            item = await self._writer.write(PlannedWrite(update, write_id), pending.deadline)
        except ConditionFailed as failed:
            self._cache.store_authoritative(shard_id, failed.item, now_ms, entry.bucket)
            return amounts
        except (NoAnswer, ServerFault):
            self._counters.add(unknown_writes=1)  # it may be committed: never twice
            self._cache.invalidate(shard_id)
            return {}
        except (NotSent, Throttled):
            return amounts
        bucket = decode(item)
        self._cache.store(shard_id, bucket, now_ms)
        if bucket.write_id != write_id:  # others followed: the overflow may be theirs
            return {}
        limits = bucket.image.limits
        surplus = {key: surplus_milli(limits[key], now_ms) for key in amounts}
        return {key: min(amounts[key], over) for key, over in surplus.items() if over > 0}

    async def _transact(
        self,
        pending: PendingChange,
        parts: list[ShardMoves],
        now_ms: int,
        *,
        of_charge: BucketChange | None = None,
    ) -> bool:
        """Write to several shards at once; False on a conflict; raises if unknown.

        Those of a charge count the acquire, and its amounts that come through a child. A repayment
        between shards counts nothing: the charge has counted them.
        """
        write_id, added = new_write_id(now_ms), HourUsage(now_ms // HOUR_MS)
        if of_charge is not None:
            added = added._replace(
                admitted=of_charge.admitted,
                through_children=_through_child(of_charge),
                tally=Tally(elsewhere=of_charge.elsewhere),
            )
        gathering = transactions.gather(
            parts, write_id, added, now_ms=now_ms, usage_ms=self._usage_rows.kept_ms
        )
        bucket_id = pending.bucket_id
        for number, hours in gathering.store_first.items():
            await self._usage_rows.store(bucket_id.shard(number), hours, pending.deadline)
        try:
            if not await self._send(gathering.actions, parts[0], write_id, pending.deadline):
                return False
        except (NoAnswer, ServerFault):
            self._counters.add(unknown_writes=1)
            for part in parts:
                self._cache.invalidate(bucket_id.shard(part.bucket.shard.number))
            self._announce(bucket_id, gathering)  # it may have been made
            raise
        if pending.change.must_fit:
            self._counters.add(gathers=1)
        self._announce(bucket_id, gathering)
        for part in parts:
            bucket = part.bucket
            has_holds = bool(part.slot_writes or part.hold_writes)
            if bucket.shard.number in gathering.begins_hours or has_holds:
                # The answer shows neither the finished hour nor the slots that are held.
                self._cache.invalidate(bucket_id.shard(bucket.shard.number))
                continue
            image = after(bucket.image, part.moves)
            image = image._replace(writes=image.writes + 1)
            shard_id = bucket_id.shard(bucket.shard.number)
            self._cache.store(shard_id, replace(bucket, image=image, write_id=write_id), now_ms)
        return True

    def _announce(self, bucket_id: BucketId, gathering: Gathering) -> None:
        """Announce the days that a transaction begins."""
        for number, begun in gathering.begins_hours.items():
            self._usage_rows.announce(bucket_id.shard(number), begun)

    async def _send(
        self, actions: list[ItemWrite], first: ShardMoves, write_id: str, deadline: Deadline
    ) -> bool:
        """Send a transaction once: a second one might overtake a first that is late."""
        try:
            await self._store.write_group(actions, Deadline(deadline.left() * FIRST_SHARE))
        except Conflict:
            return False
        except (NoAnswer, ServerFault) as doubt:
            try:
                item = await self._store.get(first.key, deadline)
            except InfrastructureError:
                raise doubt from None
            if not (shows_write(item, write_id) or shows_write(item, TURN_MARK + write_id)):
                raise
        return True


def _with_other_limits(shards: Mapping[Shard, ReadShard], change: BucketChange) -> list[int]:
    return [
        shard.number
        for shard, each in shards.items()
        if not has_limits(each.bucket.image, change.in_force.at(shard))
    ]


def _with_holds(
    parts: list[ShardMoves], shards: Mapping[Shard, ReadShard], change: BucketChange, now_ms: int
) -> tuple[list[ShardMoves], Decision]:
    """Take the slots and quotas of a gathered charge from the first shard, which has all of them.

    The first shard takes part even if nothing is taken from it: its quotas must not be in debt.
    """
    first, held = min(shards), change.in_force.held_keys
    bucket = shards[first].bucket
    decision = decide(bucket.image, [change], now_ms, JUST_SEEN)
    if change.in_force.quota_keys and all(part.bucket.shard != first for part in parts):
        parts = [ShardMoves(Key.of(shards[first].item), bucket, []), *parts]
    with_holds = []
    for part in parts:
        moves = [each for each in part.moves if each.key not in held]
        if part.bucket.shard == first:
            part = part._replace(  # noqa: PLW2901 - the same part
                slot_writes=decision.slot_writes(),
                hold_writes=decision.hold_writes(),
                through_milli=decision.held_through_children(),
            )
            moves += [*decision.slot_moves(), *decision.quota_moves()]
        with_holds.append(part._replace(moves=moves))
    return with_holds, decision


def _through_child(change: BucketChange) -> dict[str, int]:
    """Return the amounts of rates that a child is charged as well."""
    quota_keys = change.in_force.quota_keys
    amounts = {key: change.of_child(key).units for key in change.amounts_milli}
    return {key: units for key, units in amounts.items() if units and key not in quota_keys}


def _shard_moves(
    shards: Mapping[Shard, ReadShard], moves: Mapping[Shard, list[Move]]
) -> list[ShardMoves]:
    return [
        ShardMoves(Key.of(shards[shard].item), shards[shard].bucket, each)
        for shard, each in moves.items()
    ]
