"""Random histories of one client at a time, checked after each step against the stored items.

What is there is the sum over all shards. It changes by exactly what was asked for, and never
exceeds what one item would hold that has had the same history. Who is refused asks for more than
there is, and is told the first moment at which that will be otherwise.
"""

import random
from fractions import Fraction

import pytest

from sim.reference import Pot
from tests.support.dynamodb.stored import level
from tests.support.dynamodb.world import API, USER, Failure, rate_of
from zae_limiter import Limit, RateLimitExceeded

STEPS = 120
MOST = 16


class History:
    def __init__(self, world, seed):
        self.world, self.chance, self.shapes = world, random.Random(seed), 0
        self.variants = [
            (
                Limit.custom(
                    "rpm", self.chance.choice((40, 100, 333)), self.chance.randint(1, 90), 7
                ),
                Limit.custom("tpd", 5000, self.chance.randint(1, 50), 60),
            )
            for _ in range(3)
        ]

    async def run(self):
        world = self.world
        self.limits = self.variants[0]
        await world.limits(*self.limits)
        await world.use(rpm=0)
        self.ones = {
            limit.name: Pot(*rate_of(limit), world.clock(), Fraction(limit.capacity_milli))
            for limit in self.limits
        }  # what a single item would hold
        self.clients = [await world.client(config_cache_ttl=0) for _ in range(2)]
        kinds = ("charge", "settle", "give_back", "wait", "shape", "mend", "configure")
        for _ in range(STEPS):
            kind = self.chance.choices(kinds, (40, 12, 12, 20, 14, 2, 2))[0]
            world.clock.advance(ms=1)  # what was seen before is not of this moment
            await getattr(self, f"_{kind}")()
            self._check()

    # --- steps

    async def _charge(self):
        wanted, before = self._amounts(), self._levels()
        try:
            await self._client().take(**wanted)
        except RateLimitExceeded as refusal:
            assert self._levels() == before
            assert any(before[name] < 1000 * amount for name, amount in wanted.items()) or any(
                each < 0 for each in before.values()
            ), (wanted, before)
            self._check_wait(wanted, refusal)
            return
        self._took(before, wanted)

    async def _settle(self):
        before, amounts = self._levels(), self._amounts()
        changes = {
            name: self.chance.choice((amount, -self.chance.randint(0, amount)))
            for name, amount in amounts.items()
        }
        try:
            async with self._client().acquire(**amounts) as lease:
                await lease.adjust(**changes)
        except RateLimitExceeded:
            return
        self._took(before, {name: amount + changes[name] for name, amount in amounts.items()})

    async def _give_back(self):
        wanted, before = self._amounts(), self._levels()
        other = self.chance.random() < 0.5
        try:
            async with self._client().acquire(**wanted):
                if other:
                    await self._shape()
                raise Failure
        except Failure:
            after = self._levels()
            for name, held in before.items():
                assert abs(after[name] - held) <= 2 * MOST, (name, wanted, before, after)
        except RateLimitExceeded:
            assert self._levels() == before

    async def _wait(self):
        ms = self.chance.choice((1, 50, 600, 5000, 60_000))
        self.world.clock.advance(ms=self.chance.randint(1, ms))

    async def _shape(self):
        shards, before = self.world.shards(), self._levels()
        number, pairs = self.chance.choice(list(shards)), self._pairs(shards)
        self.shapes += 1
        if pairs and self.chance.random() < 0.45:
            await self.world.merge(self.chance.choice(pairs))
        elif 2 * shards[number] <= MOST:
            await self.world.split(number)
        for name, held in self._levels().items():
            assert abs(held - before[name]) <= 2

    async def _mend(self):
        before = self._levels()
        if self.chance.random() < 0.3:
            await self._client().repo.reset_bucket(USER, API)
            for name, limit in self._by_name().items():
                assert self._levels()[name] == limit.capacity_milli
                self.ones[name].set(limit.capacity_milli, self.world.clock())
        else:
            await self._client().repo.top_up(USER, API, {"rpm": 20})
            self._took(before, {"rpm": -20})

    async def _configure(self):
        """Of a full bucket: what shards no longer hold is another matter."""
        await self._client().repo.reset_bucket(USER, API)
        self.limits = self.chance.choice(self.variants)
        await self.world.limits(*self.limits)
        await self._client().take(rpm=0)
        while len({item["lh"]["S"] for item in self.world.items().values()}) > 1:
            await self._client().take(rpm=0)  # reaches all shards that it has seen
        for name, limit in self._by_name().items():
            one, now_ms = self.ones[name], self.world.clock()
            one.set(one.capacity, now_ms)
            one.turn(rate_of(limit), now_ms)

    # --- what must hold

    def _check(self):
        self.world.shards()
        now_ms, levels = self.world.clock(), self._levels()
        for name, one in self.ones.items():
            assert levels[name] <= one.level(now_ms) + 1 + 2 * self.shapes, name

    def _took(self, before, amounts):
        """Exactly that, unless it is a credit that runs over."""
        after = self._levels()
        for name, limit in self._by_name().items():
            milli = 1000 * amounts.get(name, 0)
            expected = min(before[name] - milli, limit.capacity_milli)
            assert after[name] == expected, (name, amounts, before, after)
            self.ones[name].take(milli, self.world.clock())

    def _check_wait(self, wanted, refusal):
        wait_ms = round(refusal.retry_after_seconds * 1000)
        assert wait_ms > 0
        now_ms = self.world.clock()
        assert self._holds(wanted, now_ms + wait_ms)
        assert not self._holds(wanted, now_ms + wait_ms - 1)

    def _holds(self, wanted, now_ms):
        """In one shard, or in all together."""
        items = self.world.items().values()
        amounts = {limit.name: 1000 * wanted.get(limit.name, 0) for limit in self.limits}
        alone = any(
            all(level(item, name, now_ms) >= milli for name, milli in amounts.items())
            for item in items
        )
        return alone or all(
            sum(level(item, name, now_ms) for item in items) >= milli
            for name, milli in amounts.items()
        )

    def _amounts(self):
        rpm = self.limits[0].capacity
        most = self.chance.choice((3, 10, rpm // 3, rpm))
        return {"rpm": self.chance.randint(0, most), "tpd": self.chance.choice((0, 0, 7, 900))}

    def _client(self):
        return self.chance.choice(self.clients)

    def _levels(self):
        return {limit.name: self.world.level(limit.name) for limit in self.limits}

    def _by_name(self):
        return {limit.name: limit for limit in self.limits}

    def _pairs(self, shards):
        return [
            number
            for number, n in shards.items()
            if n > 1 and number < n // 2 and shards.get(number + n // 2) == n
        ]


@pytest.mark.parametrize("seed", range(1))
async def test_a_history(world, seed):
    await History(world, seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(1, 6), *range(1000, 1200)])
async def test_many_histories(world, seed):
    await History(world, seed).run()
