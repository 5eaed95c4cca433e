"""Writing to one bucket: try, learn from the answer, and try again if need be."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter._async.engines.dynamodb.backoff import Backoff
from zae_limiter._async.engines.dynamodb.exchange import Exchange
from zae_limiter._async.engines.dynamodb.families import Families
from zae_limiter._async.engines.dynamodb.forgetting import Forgetting
from zae_limiter.admission.rebase import governs
from zae_limiter.admission.request import STALE, StaleLimits
from zae_limiter.dynamodb.attempt import ALONE, Attempt
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.expiry import is_time_to_fill, is_too_early
from zae_limiter.dynamodb.heat import Heat
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Gone, Member, Refused, Written, written
from zae_limiter.dynamodb.part import choose
from zae_limiter.dynamodb.planning import Look, Over, plan
from zae_limiter.dynamodb.view import UNSEEN, Read, View
from zae_limiter.dynamodb.writes import Terms
from zae_limiter.exceptions import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.records.dynamodb import bucket_item
from zae_limiter.records.dynamodb.bucket_item import Family, StoredBucket
from zae_limiter.records.dynamodb.bucket_marks import new_mark
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import ConditionFailed, NoAnswer, ServerFault

EXTRA_TRIES = 4
NO_FAMILY = Family()


class Writing:
    """Exact at one stamp, whatever others do meanwhile."""

    def __init__(
        self,
        exchange: Exchange,
        known: Known,
        families: Families,
        forgetting: Forgetting,
        heat: Heat,
        counters: Counters,
    ) -> None:
        self._exchange = exchange
        self._known = known
        self._families = families
        self._forgetting = forgetting
        self._heat = heat
        self._counters = counters

    async def write(self, members: Sequence[Member]) -> None:
        """Decide every member; all are of one bucket and go together, the first one leads."""
        leader, pending = members[0], list(members)
        if len(members) > 1:
            self._counters.group(len(members))
        now_ms, deadline = leader.clock(), leader.deadline
        try:
            pending = await self._rounds(pending, now_ms, deadline)
            if pending:  # others keep changing the limits
                await self._go_on(pending, now_ms, deadline)
        except ZAELimiterError as error:
            if isinstance(error, NoAnswer | ServerFault):
                self._counters.add(unknown_writes=1)
                self._known.doubt(leader.spot)
            for member in pending:
                if member.outcome is None:
                    member.outcome = error.copy()  # each caller adds to its own
        usual = len(members) == 1 and leader.counted and leader.part.is_charge
        if usual and isinstance(leader.outcome, Written):
            self._counters.granted()
        else:
            self._count(members)

    async def _go_on(self, pending: list[Member], now_ms: int, deadline: Deadline) -> None:
        """Until all are decided or there is no more time."""
        backoff = Backoff(deadline)
        while pending and await backoff.pause():
            pending = await self._rounds(pending, now_ms, deadline)
        if pending:
            raise RateLimiterUnavailable("too many others write to this bucket at once; try again")

    async def _rounds(self, pending: list[Member], now_ms: int, deadline: Deadline) -> list[Member]:
        """Those that are not decided in the end.

        Every refused try shows how the bucket stands, so a few are enough. If they are not, it
        is read and asked for the last time.
        """
        leader = pending[0]
        spot, look, rebased = leader.spot, leader.look_first, False
        view: View = self._known.get(spot) or UNSEEN
        for left in range(len(leader.part.in_force.keys) + EXTRA_TRIES, -1, -1):
            if look or left == 0:
                item = await self._exchange.read(bucket_item.key(*spot), deadline)
                view, look = self._known.learn(spot, item, now_ms, view.bucket), False
            family = NO_FAMILY
            if view.bucket is None:
                family = await self._families.get(*spot[:2], deadline)
            terms = Terms(spot, now_ms, new_mark(now_ms))  # each try has its own mark
            alone = len(pending) == 1
            parts = [pending[0].part] if alone else [member.part for member in pending]
            step = plan(view, parts, terms, family)
            if isinstance(step, Attempt):
                if step.structural:
                    if rebased:  # somebody brings other limits at once
                        await Backoff(deadline).pause()
                    rebased = True
                view = await self._try(step, view, pending, terms, deadline)
            elif isinstance(step, Look):
                look = True
            else:
                _decide(pending, step, now_ms)
            if not alone:
                pending = [member for member in pending if member.outcome is None]
            elif pending[0].outcome is not None:
                pending = []
            if not pending:
                break
        return pending

    async def _try(
        self,
        attempt: Attempt,
        view: View,
        pending: list[Member],
        terms: Terms,
        deadline: Deadline,
    ) -> View:
        """Make one write; what it shows of the bucket."""
        spot, now_ms, _ = terms
        taken = attempt.taken
        self._counters.wrote(attempt.plain_moves, attempt.clamp_moves)
        try:
            item = await self._exchange.write(attempt, deadline, lambda: self._heat.note(spot))
        except ConditionFailed as failed:
            self._counters.add(refused_writes=1)
            return self._known.learn(spot, failed.item, now_ms, view.bucket)
        bucket = bucket_item.decode(item, view.bucket)
        self._known.saw(spot, bucket, now_ms, attempt.net_milli)
        if taken is ALONE and bucket.shard.n == 1:
            pending[0].outcome = Written(bucket.image)
        elif not attempt.structural:
            _conclude(pending, taken, bucket, now_ms)
        image, in_force = bucket.image, pending[0].part.in_force
        owes_nothing = taken is ALONE  # since a charge was let through
        if owes_nothing and is_time_to_fill(image.expires_ms, image, in_force, now_ms):
            return view  # nobody is left who looks at it
        if is_too_early(image):
            in_force = in_force.at(bucket.shard)
            await self._forgetting.put_off(attempt.write.key, image, in_force, now_ms, deadline)
        return Read(bucket)

    def _count(self, members: Sequence[Member]) -> None:
        """A shard's refusal is no rejection: others are asked."""
        members = [member for member in members if member.counted]
        charges = [member.outcome for member in members if member.part.is_charge]
        granted = sum(isinstance(outcome, Written) for outcome in charges)
        refused = [outcome for outcome in charges if isinstance(outcome, Refused | Gone)]
        rejected = sum(isinstance(each, Refused) and each.shard.n == 1 for each in refused)
        self._counters.add(
            charges=len(charges) - len(refused) + rejected,
            granted=granted,
            rejected=rejected,
            settlements=len(members) - len(charges),
        )


def _decide(pending: list[Member], step: Over | Gone | StaleLimits, now_ms: int) -> None:
    for member in pending:
        if isinstance(step, Gone):
            member.outcome = step
        elif not isinstance(step, Over):
            if member.part.is_charge:
                member.outcome = STALE
        elif member.part.is_charge:
            member.outcome = Refused(step.seen, now_ms, step.shard)
        else:
            member.outcome = Written(None)


def _conclude(
    pending: list[Member], taken: Sequence[int], bucket: StoredBucket, now_ms: int
) -> None:
    """Tell everybody what a write has made of it."""
    made = written([pending[position].part for position in taken], bucket, now_ms)
    for position, outcome in zip(taken, made, strict=True):
        pending[position].outcome = outcome
    _refuse_what_does_not_fit(pending, bucket, now_ms)


def _refuse_what_does_not_fit(pending: list[Member], bucket: StoredBucket, now_ms: int) -> None:
    """Those who were skipped are judged on what the others have left.

    A write that only gave back says nothing of the limits: they may have been changed meanwhile.
    """
    image, shard = bucket.image, bucket.shard
    for member in pending:
        if member.outcome is not None or not governs(image, member.part.in_force.at(shard)):
            continue
        if not choose([member.part], image, now_ms).taken:
            member.outcome = Refused(image, now_ms, shard)
