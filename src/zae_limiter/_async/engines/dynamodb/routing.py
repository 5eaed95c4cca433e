"""Finding the shard for everything that is asked of a bucket. Most buckets have just one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from zae_limiter._async.engines.dynamodb.gathering import Gathering
from zae_limiter._async.engines.dynamodb.grouping import Grouping
from zae_limiter._async.engines.dynamodb.reshaping import Reshaping
from zae_limiter._async.engines.dynamodb.survey import Survey
from zae_limiter.admission.rebase import governs
from zae_limiter.concurrency.shield import ashield
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.member import Gone, Member, Outcome, Refused, Written
from zae_limiter.dynamodb.part import fits_alone
from zae_limiter.dynamodb.routes import Favourites
from zae_limiter.dynamodb.sights import Images, Sights, fits_together, fitting, refused
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.transport.errors import NotSent

MOST_TRIES = 8


class Routing:
    """Shards that fit are asked first; only if all refuse, so does the bucket."""

    def __init__(
        self,
        grouping: Grouping,
        known: Known,
        survey: Survey,
        gathering: Gathering,
        reshaping: Reshaping,
        counters: Counters,
        fresh_seconds: float,
    ) -> None:
        self._grouping = grouping
        self._known = known
        self._survey = survey
        self._gathering = gathering
        self._reshaping = reshaping
        self._counters = counters
        self._fresh_ms = int(fresh_seconds * 1000)
        self._favourites = Favourites()

    async def decide(self, member: Member) -> None:
        """Return when the member is decided; a caller who is stopped see ``Grouping.decide``."""
        if self._known.layout(member.place) is None:
            await self._grouping.decide(member)
        if _is_open(member.outcome):
            await self._among_shards(member)
        if self._reshaping.is_due(member.spot):
            await self._reshaping.see_to(member)

    async def _among_shards(self, member: Member) -> None:
        try:
            if member.part.is_charge:
                await self._charge(member)
            else:
                await ashield(lambda: self._settle(member))
        except ZAELimiterError as error:
            member.outcome = error

    async def _charge(self, member: Member) -> None:
        if self._can_stay(member) and await self._is_decided(member):
            return
        part = member.part
        looks = member.look_first or isinstance(member.outcome, Refused)
        looked = False
        for _ in range(MOST_TRIES):
            sights = await self._sights(member, everything=looks)
            looked, looks, now_ms = looked or looks, False, member.clock()
            images = sights.images(part.in_force, now_ms)
            fits = fitting(images, part, now_ms)
            shard = self._favourites.choose(member.place, sights.seen(fits) or fits)
            if shard is not None:
                member.turn_to(shard.number)
                if await self._is_decided(member, sights.behind(part.in_force)):
                    return
                looks = True  # what is known is out of date
            elif not looked and sights.older_than(now_ms - self._fresh_ms + 1):
                looks = True
            elif behind := sights.behind(part.in_force):
                member.outcome = await self._brought_along(member, behind)
                if member.outcome is not None:
                    return
            else:
                await self._ask_all(member, sights, images, now_ms)
                break
        else:  # others keep coming first: all shards are judged at once
            await self._gather(member)
        self._count(member)

    async def _is_decided(self, member: Member, behind: Sequence[int] = ()) -> bool:
        """Ask one shard; False if it refuses, for others may not.

        Limits that were new to a shard are brought to those ``behind``, too: they are one bucket.
        """
        await self._grouping.decide(member)
        if isinstance(member.outcome, Refused | Gone):
            return False
        if behind and isinstance(member.outcome, Written):
            await self._brought_along(member, behind)
        return True

    async def _brought_along(self, member: Member, behind: Sequence[int]) -> Outcome | None:
        """Bring the limits in force to shards that have others; what came between, if anything."""
        return await ashield(lambda: self._gathering.bring_up_to_date(member, behind))

    async def _sights(self, member: Member, *, everything: bool) -> Sights:
        """What is known of the shards, once ``everything`` or what was never seen is read."""
        sights = Sights.of(self._known, member.place)
        wanted = sights.numbers() if everything else sights.unseen()
        while wanted:
            await self._survey.look(member.place, wanted, member.clock, member.deadline)
            sights, before = Sights.of(self._known, member.place), wanted
            wanted = sights.unseen() if everything else []  # those that were read tell of others
            if wanted == before:  # there is no bucket
                break
        return sights

    async def _ask_all(self, member: Member, sights: Sights, images: Images, now_ms: int) -> None:
        """No shard holds it by itself."""
        gathers = sights.gathers(images, member.part)
        if gathers and fits_together(images, member.part, now_ms):
            await self._gather(member)
        else:
            member.outcome = refused(images, member.part, now_ms, gathers=gathers)

    async def _gather(self, member: Member) -> None:
        member.outcome = None
        await ashield(lambda: self._gathering.charge(member))

    def _can_stay(self, member: Member) -> bool:
        """Turn to the shard of the moment, if that is known to hold the charge."""
        if member.look_first or member.outcome is not None:
            return False
        number = self._favourites.current(member.place)
        seen = None if number is None else self._known.get((*member.place, number))
        if number is None or seen is None:
            return False
        image, shard, part = seen.bucket.image, seen.bucket.shard, member.part
        if not governs(image, part.in_force.at(shard)):
            return False
        if not fits_alone(part, image, member.clock()):
            return False
        member.turn_to(number)
        return True

    async def _settle(self, member: Member) -> None:
        """A credit or debt goes to one shard; what that can not hold or has not got, to others."""
        for _ in range(MOST_TRIES):
            if member.outcome is not None and not isinstance(member.outcome, Gone):
                break
            now_ms = member.clock()
            images = Sights.of(self._known, member.place).images(member.part.in_force, now_ms)
            shard = self._favourites.for_settlement(member.place, images, member.part, now_ms)
            member.turn_to(shard.number)
            await self._grouping.decide(member)
        outcome = member.outcome
        if isinstance(outcome, Gone):
            member.outcome = NotSent("others keep merging this bucket; try again")
        if not isinstance(outcome, Written):
            return
        try:
            if outcome.spilled_milli:
                await self._gathering.spill(member, outcome.spilled_milli)
            if outcome.is_short:
                await self._gathering.repay(member)
        except ZAELimiterError:  # it stands; only the shards are uneven
            logging.getLogger("zae_limiter").warning("shards stay uneven", exc_info=True)

    def _count(self, member: Member) -> None:
        if isinstance(member.outcome, Refused):
            self._counters.add(charges=1, rejected=1)
        elif isinstance(member.outcome, Written):
            self._counters.add(charges=1, granted=1)


def _is_open(outcome: Outcome | None) -> bool:
    """Whether other shards have to be asked, or have to make up for something."""
    if isinstance(outcome, Written):
        return bool(outcome.spilled_milli) or outcome.is_short
    return (
        outcome is None
        or isinstance(outcome, Gone)
        or (isinstance(outcome, Refused) and outcome.shard.n > 1)
    )
