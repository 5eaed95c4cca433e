"""Splitting shards that are written to too fast, and merging those that are not any more."""

from __future__ import annotations

import logging
from contextlib import suppress

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.exchange import Exchange
from zae_limiter._async.engines.dynamodb.forgetting import Forgetting
from zae_limiter._async.engines.dynamodb.gathering import transacted
from zae_limiter._async.engines.dynamodb.survey import Found, Survey
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import rebase
from zae_limiter.admission.shards.outlook import together
from zae_limiter.admission.shards.pressure import Pressure, mergeable, seem_mergeable, wants_split
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Clock
from zae_limiter.concurrency.shield import ashield
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.expiry import expires_ms, is_too_early
from zae_limiter.dynamodb.heat import Heat
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Member
from zae_limiter.dynamodb.sights import Sights
from zae_limiter.dynamodb.view import Place, Spot, first_spot
from zae_limiter.dynamodb.writes import Terms, rebased
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.records.dynamodb import bucket_item, bucket_shards
from zae_limiter.records.dynamodb.bucket_item import StoredBucket
from zae_limiter.records.dynamodb.bucket_marks import new_mark
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import ConditionFailed

TRIES = 4
MOST_PAIRS = 3  # that are tried at a time


class Reshaping:
    """Done by whoever notices, along with what it was about to do anyway."""

    def __init__(
        self,
        client: DynamoClient,
        known: Known,
        survey: Survey,
        exchange: Exchange,
        forgetting: Forgetting,
        heat: Heat,
        counters: Counters,
        max_shards: int,
    ) -> None:
        self._client = client
        self._known = known
        self._survey = survey
        self._exchange = exchange
        self._forgetting = forgetting
        self._heat = heat
        self._counters = counters
        self._max_shards = max_shards

    def is_due(self, spot: Spot) -> bool:
        """Whether it is worth a closer look; asked after every write, so it is quick."""
        seen = self._known.get(spot)
        if seen is None:
            return False
        pressure, shards = seen.pressure, seen.bucket.shard.n
        if pressure.is_high or self._heat.is_hot(spot):
            return 2 * shards <= self._max_shards
        return shards > 1 and pressure.at_ms == seen.at_ms

    async def see_to(self, member: Member) -> None:
        """Split or merge if that is called for. Raises nothing of the store's."""
        seen, spot = self._known.get(member.spot), member.spot
        if seen is None or member.deadline.is_nearly_over() or not self._heat.begin(spot):
            return
        hot = self._heat.is_hot(spot)
        try:
            if wants_split(seen.pressure, seen.bucket.image, self._max_shards, throttled=hot):
                shard = seen.bucket.shard
                await ashield(
                    lambda: self.split(member.place, shard, member.clock, member.deadline)
                )
            elif seen.bucket.shard.n > 1:
                await ashield(lambda: self._merge_what_is_calm(member))
        except ZAELimiterError:
            logging.getLogger("zae_limiter").debug("a bucket keeps its shape", exc_info=True)
        finally:
            self._heat.end(spot)

    async def split(self, place: Place, shard: Shard, clock: Clock, deadline: Deadline) -> bool:
        """Cut a shard in two; False if it is not there, or has been cut already."""
        for _ in range(TRIES):
            found = await self._survey.whole(place, clock, deadline)
            if shard not in found or 2 * shard.n > self._max_shards:
                return False
            now_ms = clock()
            actions = bucket_shards.split(found[shard].item, now_ms, new_mark(now_ms))
            if await transacted(self._client, actions, deadline, repeatable=True):
                self._counters.add(splits=1)
                await self._look(place, shard.halves(), clock, deadline)
                return True
            await self._sweep(place, shard, clock, deadline)
        return False

    async def merge(
        self, place: Place, shard: Shard, in_force: InForce, clock: Clock, deadline: Deadline
    ) -> bool:
        """Add a shard's sibling to it; False if either is not there, or their limits differ."""
        for _ in range(TRIES):
            found = await self._survey.whole(place, clock, deadline)
            kept, gone = found.get(shard), found.get(shard.sibling)
            if kept is None or gone is None:
                return False
            now_ms = clock()
            if not bucket_shards.can_merge(kept.bucket, gone.bucket):
                if not await self._tidied(place, (kept, gone), in_force, now_ms, deadline):
                    return False
                continue
            until = _expires_ms(kept.bucket, gone.bucket, in_force, now_ms)
            mark = new_mark(now_ms)
            actions = bucket_shards.merge(kept.item, gone.item, now_ms, mark, until)
            if await transacted(self._client, actions, deadline, repeatable=True):
                self._counters.add(merges=1)
                await self._look(place, (shard, shard.sibling), clock, deadline)
                await self._mind_debts(place, in_force, now_ms, deadline)
                return True
        return False

    async def _merge_what_is_calm(self, member: Member) -> None:
        """Both halves must have been quiet for long; the other one is read to be sure of that."""
        place, clock, deadline = member.place, member.clock, member.deadline
        for shard in seem_mergeable(self._pressures(place), clock())[:MOST_PAIRS]:
            await self._look(place, (shard, shard.sibling), clock, deadline)
            if shard in mergeable(self._pressures(place), clock()) and await self.merge(
                place, shard, member.part.in_force, clock, deadline
            ):
                return

    def _pressures(self, place: Place) -> dict[Shard, Pressure]:
        shards = Sights.of(self._known, place).shards
        return {shard: seen.pressure for shard, seen in shards.items() if seen is not None}

    async def _tidied(
        self,
        place: Place,
        pair: tuple[Found, Found],
        in_force: InForce,
        now_ms: int,
        deadline: Deadline,
    ) -> bool:
        """Bring both to the limits in force and drop what calls have brought and is full."""
        changed = False
        for each in pair:
            bucket = each.bucket
            target = rebase(bucket.image, in_force.at(bucket.shard), now_ms)
            if target.limits.keys() != bucket.image.limits.keys():
                spot = (*place, bucket.shard.number)
                terms = Terms(spot, now_ms, new_mark(now_ms))
                with suppress(ConditionFailed):
                    attempt = rebased(bucket, target, in_force, terms)
                    await self._exchange.write(attempt, deadline)
                    changed = True
        return changed

    async def _mind_debts(
        self, place: Place, in_force: InForce, now_ms: int, deadline: Deadline
    ) -> None:
        """A debt that came during the last merge is not to be forgotten before it is repaid."""
        seen = self._known.get(first_spot(place))
        if seen is not None and is_too_early(seen.bucket.image):
            key = bucket_item.key(*first_spot(place))
            await self._forgetting.put_off(key, seen.bucket.image, in_force, now_ms, deadline)

    async def _look(
        self, place: Place, shards: tuple[Shard, Shard], clock: Clock, deadline: Deadline
    ) -> None:
        numbers = [shard.number for shard in shards]
        await self._survey.read(place, numbers, clock, deadline)

    async def _sweep(self, place: Place, shard: Shard, clock: Clock, deadline: Deadline) -> None:
        """Remove what an entity's deletion has left where the new half belongs."""
        numbers = (shard.number, shard.halves()[1].number)
        items = await self._survey.read(place, numbers, clock, deadline)
        parent, orphan = (items.get(number) for number in numbers)
        if parent is None or orphan is None or bucket_item.decode(parent).shard != shard:
            return
        actions = bucket_shards.sweep(parent, orphan)
        await transacted(self._client, actions, deadline, repeatable=True)


def _expires_ms(
    kept: StoredBucket, gone: StoredBucket, in_force: InForce, now_ms: int
) -> int | None:
    """When the bucket may be forgotten, if this is the last merge."""
    if kept.shard.n > 2:
        return None
    shards = {each.shard: each.image for each in (kept, gone)}
    image = together(shards, kept.whole_rates, now_ms)
    return expires_ms(image, in_force, now_ms)
