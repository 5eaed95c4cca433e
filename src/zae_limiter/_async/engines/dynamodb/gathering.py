"""What takes from several shards of a bucket at once, in one transaction or not at all."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping

from zae_limiter._async.engines.dynamodb.backoff import Backoff
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.exchange import FIRST_SHARE, Exchange
from zae_limiter._async.engines.dynamodb.grouping import Grouping
from zae_limiter._async.engines.dynamodb.survey import Found, Survey
from zae_limiter._async.engines.dynamodb.transactions import CONFLICT, overtaken
from zae_limiter.admission.moves import Move, surplus_milli
from zae_limiter.admission.rebase import governs
from zae_limiter.admission.shards.spreading import gather, place_what_fits, taking
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.dynamodb.attempt import Attempt
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.expiry import after
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Gone, Member, Outcome, Refused, Written
from zae_limiter.dynamodb.part import Part
from zae_limiter.dynamodb.sights import Sights, refused
from zae_limiter.dynamodb.transfers import repayment
from zae_limiter.exceptions import (
    InfrastructureError,
    RateLimiterUnavailable,
    ZAELimiterError,
)
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.bucket_item import decode
from zae_limiter.records.dynamodb.bucket_item import key as key_of
from zae_limiter.records.dynamodb.bucket_marks import new_mark
from zae_limiter.records.dynamodb.bucket_shards import Taken
from zae_limiter.records.dynamodb.bucket_shards import gather as gather_actions
from zae_limiter.records.dynamodb.bucket_writes import Stamp, bucket_update, require_same
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import (
    ConditionFailed,
    NoAnswer,
    NotSent,
    ServerFault,
    Throttled,
    TransactionCanceled,
)

SPILLS = 12
TOO_MANY = "too many others write to this bucket at once; try again"


class Gathering:
    """Tokens move between shards only together with what needs them."""

    def __init__(
        self,
        client: DynamoClient,
        known: Known,
        survey: Survey,
        exchange: Exchange,
        grouping: Grouping,
        counters: Counters,
    ) -> None:
        self._client = client
        self._known = known
        self._survey = survey
        self._exchange = exchange
        self._grouping = grouping
        self._counters = counters

    async def charge(self, member: Member) -> None:
        """A charge that no shard holds by itself; decided when this returns."""
        part, backoff = member.part, Backoff(member.deadline)
        while True:
            found = await self._survey.whole(member.place, member.clock, member.deadline)
            behind = _with_other_limits(found, part)
            if behind or not found:
                member.outcome = await self.bring_up_to_date(member, behind or [0])
                if member.outcome is not None:
                    return
                if not await backoff.pause():
                    raise RateLimiterUnavailable(TOO_MANY)
                continue
            now_ms = member.clock()
            images = {shard: each.bucket.image for shard, each in found.items()}
            spread = gather(images, part.amounts_milli, now_ms)
            if spread is None:
                member.outcome = refused(images, part, now_ms, gathers=True)
                return
            taken = {
                shard: taking(images[shard], amounts, now_ms) for shard, amounts in spread.items()
            }
            if await self._transact(member, _parts(found, taken), now_ms, part.admitted):
                member.outcome = Written(None)
                return
            if not await backoff.pause():
                raise RateLimiterUnavailable(TOO_MANY)

    async def spill(self, member: Member, amounts_milli: Mapping[str, int]) -> None:
        """Give to the other shards what one of them could not hold of a credit.

        If there is room nowhere, it is lost, as in a full bucket. Raises nothing of the store's.
        """
        left, problem = dict(amounts_milli), None
        try:
            await self._give_to_others(member, left)
        except ZAELimiterError as error:
            problem = error
        if left:
            self._counters.add(lost_refunds=1)
            logging.getLogger("zae_limiter").error(
                "could not give %r back to %r on %r", left, *member.place[1:], exc_info=problem
            )

    async def _give_to_others(self, member: Member, left: dict[str, int]) -> None:
        """Until nothing is left, or no time.

        That there is room nowhere can only be said once nobody has written between two looks:
        shards are not read at one moment.
        """
        backoff = Backoff(member.deadline)
        for _ in range(SPILLS):
            now_ms, sights = member.clock(), Sights.of(self._known, member.place)
            images = sights.images(member.part.in_force, now_ms)
            placed = place_what_fits(images, left, now_ms)
            if not placed.spread and not await self._finds_news(member, sights):
                left.clear()
            for shard, amounts in placed.spread.items():
                back = await self._given(member, shard, amounts)
                for key, amount in amounts.items():
                    left[key] -= amount - back.get(key, 0)
                    if not left[key]:
                        del left[key]
            if not left or not await backoff.pause():
                return

    async def _finds_news(self, member: Member, sights: Sights) -> bool:
        """Look at all shards; False if they are as they were known."""
        place = member.place
        await self._survey.look(place, sights.numbers(), member.clock, member.deadline)
        return Sights.of(self._known, place).marks() != sights.marks()

    async def repay(self, member: Member) -> None:
        """Let the other shards make up for what one of them owes."""
        backoff = Backoff(member.deadline)
        while True:
            found = await self._survey.whole(member.place, member.clock, member.deadline)
            images = {shard: each.bucket.image for shard, each in found.items()}
            now_ms = member.clock()
            moves = repayment(images, member.spot[3], now_ms)
            if not moves or await self._transact(member, _parts(found, moves), now_ms, 0):
                return
            if not await backoff.pause():
                raise RateLimiterUnavailable(TOO_MANY)

    async def bring_up_to_date(self, member: Member, numbers: Iterable[int]) -> Outcome | None:
        """Bring the limits in force to shards that have others, by charging them with nothing.

        What came between, if that can not be.
        """
        part = member.part
        nothing = part._replace(amounts_milli=dict.fromkeys(part.amounts_milli, 0), admitted=0)
        for number in numbers:
            each = Member(member.place, nothing, member.clock, member.deadline)
            each.turn_to(number)
            each.counted = False
            await self._grouping.decide(each)
            if not isinstance(each.outcome, Written | Refused | Gone):
                return each.outcome
        return None

    async def _given(
        self, member: Member, shard: Shard, amounts: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Credit one shard with what was counted at another; what it could not hold after all."""
        seen = self._known.get((*member.place, shard.number))
        if seen is None or seen.bucket.shard != shard:
            return amounts
        now_ms = member.clock()
        mark = new_mark(now_ms)
        moves = [Move(key, None, None, amount, None) for key, amount in amounts.items()]
        update = bucket_update(key_of(*member.place, shard.number), moves, Stamp(mark))
        require_same(update, seen.bucket)
        spot = (*member.place, shard.number)
        try:
            item = await self._exchange.write(Attempt(update, mark), member.deadline)
        except ConditionFailed as failed:
            self._known.learn(spot, failed.item, now_ms, seen.bucket)
            return amounts
        except (NoAnswer, ServerFault):
            self._counters.add(unknown_writes=1)  # it may stand: not twice
            return {}
        except (NotSent, Throttled):
            return amounts
        bucket = decode(item)
        self._known.saw(spot, bucket, now_ms)
        limits = bucket.image.limits
        over = {key: surplus_milli(limits[key], now_ms) for key in amounts}
        return {key: min(amounts[key], each) for key, each in over.items() if each > 0}

    async def _transact(
        self, member: Member, parts: list[Taken], now_ms: int, admitted: int
    ) -> bool:
        """False if something has changed meanwhile; raises if nobody knows."""
        mark = new_mark(now_ms)
        actions = gather_actions(parts, mark, admitted)
        try:
            if not await self._is_made(actions, parts[0], mark, member.deadline):
                return False
        except (NoAnswer, ServerFault):
            self._counters.add(unknown_writes=1)
            for taken in parts:
                self._known.doubt((*member.place, taken.bucket.shard.number))
            raise
        self._counters.add(gathers=1)
        for taken in parts:
            bucket = taken.bucket
            image = after(bucket.image, taken.moves)
            image = image._replace(writes=image.writes + 1)
            spot = (*member.place, bucket.shard.number)
            self._known.saw(spot, bucket._replace(image=image, operation=mark), now_ms)
        return True

    async def _is_made(
        self, actions: list[Action], first: Taken, mark: str, deadline: Deadline
    ) -> bool:
        """One transaction, sent once: a second one could come before a first that is late."""
        try:
            return await transacted(self._client, actions, Deadline(deadline.left() * FIRST_SHARE))
        except (NoAnswer, ServerFault) as doubt:
            try:
                item = await self._exchange.read(first.key, deadline)
            except InfrastructureError:
                raise doubt from None
            if item is None or decode(item).operation != mark:
                raise
            return True


async def transacted(
    client: DynamoClient, actions: list[Action], deadline: Deadline, *, repeatable: bool = False
) -> bool:
    """Write all or nothing; False if something stands otherwise than it was read."""
    named = [
        {kind: {"TableName": client.table, **body} for kind, body in action.items()}
        for action in actions
    ]
    body = {"TransactItems": named, "ClientRequestToken": str(uuid.uuid4())}
    try:
        await client.call("TransactWriteItems", body, deadline=deadline, repeatable=repeatable)
    except TransactionCanceled as canceled:
        overtaken(canceled)
        return False
    except Throttled as throttled:
        if CONFLICT not in throttled.code:
            raise
        return False
    return True


def _with_other_limits(found: Mapping[Shard, Found], part: Part) -> list[int]:
    return [
        shard.number
        for shard, each in found.items()
        if not governs(each.bucket.image, part.in_force.at(shard))
    ]


def _parts(found: Mapping[Shard, Found], moves: Mapping[Shard, list[Move]]) -> list[Taken]:
    return [
        Taken(Key.of(found[shard].item).item, found[shard].bucket, each)
        for shard, each in moves.items()
    ]
