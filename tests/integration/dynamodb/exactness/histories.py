"""Random histories: clients, a clock, changes and faults; each write is replayed exactly."""

import asyncio
import random
from collections import Counter
from contextlib import ExitStack

from tests.integration.dynamodb.exactness.calls import Call
from tests.integration.dynamodb.exactness.replay import Replay
from tests.integration.dynamodb.exactness.rules import check_update
from tests.support.dynamodb.stored import full_at_ms, limits_of
from tests.support.dynamodb.world import API, PARENT, USER
from zae_limiter import Limit

FAULTS = (
    "lose_answer", "cut_answer", "garble", "error_after", "error_before", "throttle", "close",
    "late",
)  # fmt: skip
TIMEOUT_S = 2.0


def variants(rng):
    """Limits that the namespace may have: names stay, numbers change."""
    return [
        (
            Limit.custom(
                "rpm", rng.choice((5, 12, 30)), rng.randint(1, 40), rng.choice((1, 7, 60))
            ),
            Limit.custom("tpm", rng.choice((9, 40)), rng.randint(1, 99), rng.choice((1, 13, 3600))),
        )
        for _ in range(4)
    ]


class History:
    """One namespace. ``run`` does ``steps`` random things and checks after each of them."""

    def __init__(self, world, proxy, seed):
        self.world, self.proxy = world, proxy
        self.rng = random.Random(seed)
        self.limits = variants(self.rng)
        self.cascade = self.rng.random() < 0.4
        self.faulty = self.rng.random() < 0.6
        self.cache_ttl = self.rng.choice((0, 60))
        self.refusal_ttl = self.rng.choice((0, 0, 1))
        self.ttl_multiplier = self.rng.choice((1, 1, 7))
        self.changed = False
        self.replays = {USER: Replay(), PARENT: Replay()}
        self.counts = Counter()
        self.repeated = 0
        self._read = 0

    async def run(self, steps):
        await self._begin()
        with self.proxy.measure() as self.measured:
            for _ in range(steps):
                await self._step()

    async def _begin(self):
        count = self.rng.randint(1, 6)
        self.clients = [await self._new_client() for _ in range(count)]
        self.stored = self.limits[0]
        await self.clients[0].repo.set_system_defaults(self.stored)
        if self.cascade:
            self.parent_limits = (Limit.custom("rpm", 25, self.rng.randint(1, 50), 10),)
            await self.clients[0].repo.create_entity(PARENT)
            await self.clients[0].repo.create_entity(USER, parent_id=PARENT, cascade=True)
            await self.clients[0].repo.set_limits(PARENT, self.parent_limits, API)

    async def _new_client(self):
        return await self.world.client(
            self.proxy,
            config_cache_ttl=self.cache_ttl,
            rejection_cache_ttl=self.refusal_ttl,
            bucket_ttl_multiplier=self.ttl_multiplier,
            request_timeout=TIMEOUT_S,
            max_shards=1,  # faults may look like a busy item, and one item is followed here
        )

    async def _step(self):
        kind = self.rng.choices(
            ("burst", "wait", "configure", "mend", "forget"), (60, 25, 5, 5, 5)
        )[0]
        self.counts[kind] += 1
        await getattr(self, f"_{kind}")()

    # --- time and management

    async def _wait(self):
        clock, rng = self.world.clock, self.rng
        how = rng.randrange(10)
        if how == 0:
            clock.advance(ms=1)
        elif how <= 2:
            clock.advance(ms=rng.randrange(5000))
        elif how == 3:
            clock.advance(ms=rng.randrange(4_000_000))
        elif how == 4:
            clock.advance(ms=-rng.randrange(300_000))
        else:
            self._wait_until_full(rng.choice((-1, 0, 1, 5000)))

    def _wait_until_full(self, off_ms):
        item = self.world.item()
        if item is not None:
            moment = full_at_ms(item, self.rng.choice(limits_of(item))) + off_ms
            if abs(moment - self.world.clock()) < 10**9:
                self.world.clock.set(moment)

    async def _configure(self):
        self.stored, self.changed = self.rng.choice(self.limits), True
        await self.rng.choice(self.clients).repo.set_system_defaults(self.stored)

    async def _mend(self):
        repo, replay = self.rng.choice(self.clients).repo, self.replays[USER]
        if "rpm" not in replay.pots:
            return
        if self.rng.random() < 0.5:
            await repo.reset_bucket(USER, API)
            replay.mended(self.world.item(), self.world.clock())
        else:
            await repo.top_up(USER, API, {"rpm": 3})
            replay.mended(self.world.item(), self.world.clock(), {"rpm": 3000})

    async def _forget(self):
        """As the store would, once it may."""
        for entity_id, replay in self.replays.items():
            item = self.world.item(entity_id)
            if item is None or "ttl" not in item:
                continue
            if int(item["ttl"]["N"]) * 1000 <= self.world.clock():
                if not replay.is_full(self.world.clock()):
                    assert self.faulty, "a bucket in use would be forgotten"
                    continue  # its time was to be moved on, and a fault prevented that
                self.world.expire(entity_id)
                self.replays[entity_id] = Replay()

    # --- calls, many at once at one moment

    async def _burst(self):
        size = self.rng.choice((1, 1, 1, 2, 3, 5, 10))
        before = {entity: replay.totals() for entity, replay in self.replays.items()}
        admitted = {entity: replay.admitted for entity, replay in self.replays.items()}
        self.lossy = False
        with ExitStack() as faults:
            if self.faulty and self.rng.random() < 0.5:
                self.lossy = True
                self._break(faults)
            alone = self.rng.choice((self.rng.choice(self.clients), None))
            calls = [self._call(alone) for _ in range(size)]
            effects = await asyncio.gather(*(call.run() for call in calls))
        await self._end_repetitions()
        await self._settled()
        written = self._follow(calls)
        self._check_totals(effects, before, admitted)
        if size == 1 and not self.lossy:
            self._check_refusal(calls[0])
        self._check_ttl(written)
        self.counts["admitted"] += sum(effect.entered for effect in effects)
        self.counts["refused"] += sum(effect.refused for effect in effects)
        self.counts["unknown"] += sum(effect.maybe for effect in effects)

    def _call(self, alone):
        client = alone or self.rng.choice(self.clients)
        return Call(self.rng, client, self.limits, lossy=self.lossy, cascades=self.cascade)

    def _break(self, faults):
        for _ in range(self.rng.randint(1, 2)):
            options = {"delay_ms": 15} if (kind := self.rng.choice(FAULTS)) == "late" else {}
            faults.enter_context(
                self.proxy.fault(
                    kind,
                    operation=self.rng.choice(("UpdateItem", "UpdateItem", None)),
                    times=self.rng.randint(1, 3),
                    skip=self.rng.choice((0, 0, 0, 1, 2, 3)),
                    **options,
                )
            )

    async def _end_repetitions(self):
        """Close each client that would repeat the end of a block in a later step."""
        for position, client in enumerate(self.clients):
            if client.repo.pending_settlements:
                assert self.lossy, "an end was not stored without a reason"
                await client.repo.close(timeout=0.01)
                self.clients[position] = await self._new_client()

    async def _settled(self):
        """Nothing is under way any more."""
        async with asyncio.timeout(5):
            while any(  # noqa: ASYNC110 - another thread sees it
                map(_is_under_way, self.measured.requests[self._read :])
            ):
                await asyncio.sleep(0.002)

    # --- checks

    def _follow(self, calls):
        """Replay what the store has written; returns whose buckets."""
        returned = Counter()
        for call in calls:
            for name, amount in call.returnable.items():
                returned[name] += 1000 * amount
        found = {USER: [], PARENT: []}
        requests, now_ms = self.measured.requests, self.world.clock()
        for exchange in requests[self._read :]:
            if exchange.operation == "UpdateItem":
                check_update(exchange.body)
            item = exchange.answer.get("Attributes")
            if exchange.operation == "UpdateItem" and item and "wc" in item:
                entity_id = USER if USER in item["GSI2SK"]["S"] else PARENT
                found[entity_id].append((item, exchange.fault == "late"))
        self._read = len(requests)
        self.late = {USER: Counter(), PARENT: Counter()}
        for entity_id, items in found.items():
            for item, is_late in sorted(items, key=lambda each: int(each[0]["wc"]["N"])):
                replay = self.replays[entity_id]
                before, admitted = replay.totals(), replay.admitted
                replay.follow(item, now_ms, returned)
                if is_late:
                    self.late[entity_id].update(replay.totals() - before)
                    self.late[entity_id]["admitted"] += replay.admitted - admitted
                self.counts["writes"] += 1
        return [entity_id for entity_id, items in found.items() if items]

    def _check_totals(self, effects, before, admitted):
        """At worst an original that arrives after its repetition is charged, too."""
        repeated = sum(each.repo.get_stats().repeated_writes for each in self.clients)
        was_repeated, self.repeated = repeated > self.repeated, repeated
        for entity_id in (USER, PARENT) if self.cascade else (USER,):
            replay = self.replays[entity_id]
            item = self.world.item(entity_id)
            assert (item is None) == (replay.writes == 0)
            assert item is None or int(item["wc"]["N"]) == replay.writes
            names = ("rpm", "tpm") if entity_id == USER else ("rpm",)
            totals = replay.totals()
            extra = self.late[entity_id] if was_repeated else Counter()
            for name in names:
                spent = totals[name] - before[entity_id][name]
                least = 1000 * sum(effect.least[name] for effect in effects)
                most = 1000 * sum(effect.most[name] for effect in effects) + extra[name]
                assert least <= spent <= most, (entity_id, name, least, spent, most)
            entered = sum(effect.entered for effect in effects)
            maybe = sum(effect.maybe for effect in effects)
            most = entered + maybe + extra["admitted"]
            assert entered <= replay.admitted - admitted[entity_id] <= most

    def _check_refusal(self, call):
        """Alone, and with all that can be known, only what does not fit is refused."""
        if self.refusal_ttl or (self.cache_ttl and self.changed) or not call.effect.refused:
            return
        asked = [(self.replays[USER], each) for each in call.limits or self.stored]
        if self.cascade:
            asked += [(self.replays[PARENT], each) for each in self.parent_limits]
        now_ms = self.world.clock()
        assert any(
            replay.level(limit, now_ms) < 1000 * call.amounts.get(limit.name, 0) + 10
            for replay, limit in asked
        ), (call.limits or self.stored, call.amounts, self.replays, now_ms)

    def _check_ttl(self, written):
        for entity_id in () if self.lossy else written:
            item = self.world.item(entity_id)
            if "ttl" in item:
                full = max(full_at_ms(item, limit) for limit in limits_of(item))
                assert int(item["ttl"]["N"]) * 1000 >= full, "it may be forgotten too early"


def _is_under_way(exchange):
    return exchange.ended is None or (exchange.fault == "late" and not exchange.raw_answer)
