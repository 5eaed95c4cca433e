"""Writing to one bucket: try, learn from the answer, and try again if need be."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter._async.engines.dynamodb.backoff import Backoff
from zae_limiter._async.engines.dynamodb.exchange import Exchange
from zae_limiter._async.engines.dynamodb.families import Families
from zae_limiter._async.engines.dynamodb.forgetting import Forgetting
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.rebase import governs
from zae_limiter.admission.request import STALE, StaleLimits
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Member, Refused, Written
from zae_limiter.dynamodb.part import choose, total
from zae_limiter.dynamodb.planning import Look, Next, Over, plan
from zae_limiter.dynamodb.view import View
from zae_limiter.dynamodb.writes import Terms
from zae_limiter.exceptions import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.records.dynamodb import bucket_item
from zae_limiter.records.dynamodb.bucket_item import Family
from zae_limiter.records.dynamodb.bucket_marks import new_mark
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import ConditionFailed, NoAnswer, ServerFault

EXTRA_TRIES = 4


class Writing:
    """Exact at one stamp, whatever others do meanwhile."""

    def __init__(
        self,
        exchange: Exchange,
        known: Known,
        families: Families,
        forgetting: Forgetting,
        counters: Counters,
    ) -> None:
        self._exchange = exchange
        self._known = known
        self._families = families
        self._forgetting = forgetting
        self._counters = counters

    async def write(self, members: Sequence[Member]) -> None:
        """Decide every member; all are of one bucket and go together, the first one leads."""
        leader, pending = members[0], list(members)
        if len(members) > 1:
            self._counters.group(len(members))
        terms = Terms(leader.place, leader.clock(), "")
        try:
            backoff = Backoff(leader.deadline)
            pending = await self._rounds(pending, terms, leader.deadline)
            while pending and await backoff.pause():  # others keep changing the limits
                pending = await self._rounds(pending, terms, leader.deadline)
            error: ZAELimiterError = RateLimiterUnavailable(
                "too many others write to this bucket at once; try again"
            )
        except ZAELimiterError as problem:
            error = problem
            if isinstance(problem, NoAnswer | ServerFault):
                self._counters.add(unknown_writes=1)
                self._known.forget(leader.place)
        for member in pending:
            if member.outcome is None:
                member.outcome = error.copy()  # each caller adds to its own
        self._count(members)

    async def _rounds(
        self, pending: list[Member], terms: Terms, deadline: Deadline
    ) -> list[Member]:
        """Those that are not decided in the end.

        Every refused try shows how the bucket stands, so a few are enough. If they are not, it
        is read and asked for the last time.
        """
        view = View.remembered(self._known.get(terms.place))
        look, backoff, rebased = pending[0].look_first, Backoff(deadline), False
        for left in reversed(range(len(pending[0].part.in_force.keys) + EXTRA_TRIES + 1)):
            if look or left == 0:
                item = await self._exchange.read(bucket_item.key(*terms.place), deadline)
                view, look = self._known.learn(terms.place, item, terms.now_ms, view.bucket), False
            family = Family()
            if view.bucket is None:
                family = await self._families.get(*terms.place[:2], deadline)
            terms = terms._replace(operation=new_mark(terms.now_ms))  # each try has its own
            step = plan(view, [member.part for member in pending], terms, family)
            if isinstance(step, Next):
                if step.attempt.structural and rebased:  # somebody brings other limits at once
                    await backoff.pause()
                rebased = rebased or step.attempt.structural
                view = await self._try(step, view, pending, terms, deadline)
            elif isinstance(step, Look):
                look = True
            else:
                _decide(pending, step, terms.now_ms)
            pending = [member for member in pending if member.outcome is None]
            if not pending:
                break
        return pending

    async def _try(
        self,
        step: Next,
        view: View,
        pending: list[Member],
        terms: Terms,
        deadline: Deadline,
    ) -> View:
        """Make one write; what it shows of the bucket."""
        attempt, now_ms = step.attempt, terms.now_ms
        self._counters.add(writes=1, **attempt.branches)
        try:
            item = await self._exchange.write(attempt, deadline)
        except ConditionFailed as failed:
            self._counters.add(refused_writes=1)
            return self._known.learn(terms.place, failed.item, now_ms, view.bucket)
        bucket, in_force = bucket_item.decode(item), pending[0].part.in_force
        key = attempt.update.key
        if attempt.structural:
            self._known.saw(terms.place, bucket, now_ms)
            await self._forgetting.check(key, bucket.image, in_force, now_ms, deadline)
            return View(bucket, literal=True)
        taken = [pending[position] for position in step.taken]
        for member in taken:
            member.outcome = Written(bucket.image)
        own = {
            key: wanted.taken_milli - wanted.returned_milli
            for key, wanted in total(member.part for member in taken).items()
        }
        self._known.saw(terms.place, bucket, now_ms, own)
        _refuse_what_does_not_fit(pending, bucket.image, now_ms)
        await self._forgetting.check(key, bucket.image, in_force, now_ms, deadline)
        return View(bucket, literal=True)

    def _count(self, members: Sequence[Member]) -> None:
        charges = [member for member in members if member.part.is_charge]
        self._counters.add(
            charges=len(charges),
            granted=sum(isinstance(member.outcome, Written) for member in charges),
            rejected=sum(isinstance(member.outcome, Refused) for member in charges),
            settlements=len(members) - len(charges),
        )


def _decide(pending: list[Member], step: Over | StaleLimits, now_ms: int) -> None:
    for member in pending:
        if not isinstance(step, Over):
            if member.part.is_charge:
                member.outcome = STALE
        elif member.part.is_charge:
            member.outcome = Refused(step.seen, now_ms)
        else:
            member.outcome = Written(None)


def _refuse_what_does_not_fit(pending: list[Member], image: BucketImage, now_ms: int) -> None:
    """Those who were skipped are judged on what the others have left.

    A write that only gave back says nothing of the limits: they may have been changed meanwhile.
    """
    for member in pending:
        if member.outcome is not None or not governs(image, member.part.in_force):
            continue
        if not choose([member.part], image, now_ms).taken:
            member.outcome = Refused(image, now_ms)
