"""Random histories: clients, a clock, changes and faults; each write is replayed exactly."""

import asyncio
import random
from collections import Counter
from contextlib import ExitStack, suppress

from tests.integration.dynamodb.exactness.replay import Replay
from tests.integration.dynamodb.exactness.rules import check_update
from tests.integration.dynamodb.exactness.world import (
    API,
    PARENT,
    USER,
    Failure,
    full_at_ms,
    limits_of,
)
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded

DEBTS = (7, 7, 7, 14, 70)
AMOUNTS = (0, 1, 1, 2, 3, 5)
FAULTS = (
    "lose_answer", "cut_answer", "garble", "error_after", "error_before", "throttle", "close",
    "late",
)  # fmt: skip
MORE = {"rpm": 2, "tpm": 1}
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


class Effect:
    """What one call did to the net consumption, at least and at most, in tokens by name."""

    def __init__(self, returnable):
        self.least, self.most = Counter(), Counter()
        self.returnable = returnable
        self.entered = self.maybe = 0
        self.refused = None  # the limits and amounts of a charge that did not fit

    def certain(self, amounts, sign=1):
        for name, amount in amounts.items():
            self.least[name] += sign * amount
            self.most[name] += sign * amount

    def possible(self, amounts, sign=1):
        for name, amount in amounts.items():
            self.least[name] += min(0, sign * amount)
            self.most[name] += max(0, sign * amount)


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
        self._read = 0

    async def run(self, steps):
        await self._begin()
        with self.proxy.measure() as self.measured:
            for _ in range(steps):
                await self._step()

    async def _begin(self):
        count = self.rng.randint(1, 6)
        self.clients = [
            await self.world.client(
                self.proxy,
                config_cache_ttl=self.cache_ttl,
                rejection_cache_ttl=self.refusal_ttl,
                bucket_ttl_multiplier=self.ttl_multiplier,
                request_timeout=TIMEOUT_S,
            )
            for _ in range(count)
        ]
        self.stored = self.limits[0]
        await self.clients[0].repo.set_system_defaults(self.stored)
        if self.cascade:
            self.parent_limits = (Limit.custom("rpm", 25, self.rng.randint(1, 50), 10),)
            await self.clients[0].repo.create_entity(PARENT)
            await self.clients[0].repo.create_entity(USER, parent_id=PARENT, cascade=True)
            await self.clients[0].repo.set_limits(PARENT, self.parent_limits, API)

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
                assert replay.is_full(self.world.clock()), "a bucket in use was forgotten"
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
            calls = [self._call(alone or self.rng.choice(self.clients)) for _ in range(size)]
            effects = await asyncio.gather(*calls)
            await self._settled()
        written = self._follow(effects)
        self._check_totals(effects, before, admitted)
        self._check_refusals(effects)
        self._check_ttl(written)
        self.counts["admitted"] += sum(effect.entered for effect in effects)
        self.counts["refused"] += sum(effect.refused is not None for effect in effects)
        self.counts["unknown"] += sum(effect.maybe for effect in effects)

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

    async def _settled(self):
        """Nothing is under way any more."""
        async with asyncio.timeout(5):
            while any(  # noqa: ASYNC110 - another thread sees it
                map(_is_under_way, self.measured.requests[self._read :])
            ):
                await asyncio.sleep(0.002)

    def _call(self, client):
        rng = self.rng
        names = rng.choice((("rpm",), ("tpm",), ("rpm", "tpm"), ("rpm", "tpm")))
        amounts = {name: rng.choice(AMOUNTS) for name in names}
        limits = None
        if rng.random() < 0.2:
            limits = [each for each in rng.choice(self.limits) if each.name in names]
        plan = rng.choice(("keep", "keep", "fail", "debt", "credit", "release", "consume", "leave"))
        return self._one(client, amounts, limits, plan, rng.choice(DEBTS), rng.random() * 0.02)

    async def _one(self, client, amounts, limits, plan, debt, patience_s):
        effect = Effect(Counter(amounts) + Counter(MORE))
        lost = client.repo.lost_settlements
        asked = (limits or self.stored, amounts)
        if plan == "leave":
            task = asyncio.ensure_future(client.take(limits=limits, **amounts))
            await asyncio.sleep(patience_s)
            task.cancel()
            await self._left(task, effect, amounts, asked)
            return effect
        try:
            async with client.acquire(limits=limits, **amounts) as lease:
                effect.entered += 1
                effect.certain(amounts)
                with suppress(Failure):
                    await self._inside(lease, effect, amounts, plan, debt)
                returned = lease.consumed if plan in ("fail", "release") else None
                settled = _negated(returned) if returned else {}
                if plan == "debt":
                    settled = dict.fromkeys(amounts, debt)
                elif plan == "credit":
                    settled = _negated(amounts)
                if returned is not None:
                    raise Failure
        except Failure:
            pass
        except RateLimitExceeded:
            effect.refused = asked
            self._in_doubt(effect, amounts, only_if=self.lossy and self.cascade)
            return effect
        except RateLimiterUnavailable as error:
            self._gave_up(effect, amounts, error)
            return effect
        if client.repo.lost_settlements == lost:
            effect.certain(settled)
        else:
            assert self.lossy, "a settlement was lost without a reason"
            effect.possible(settled)
        return effect

    async def _inside(self, lease, effect, amounts, plan, debt):
        if plan == "debt":
            await lease.adjust(**dict.fromkeys(amounts, debt))
        elif plan == "credit":
            await lease.adjust(**_negated(amounts))
        elif plan == "consume":
            more = {name: MORE[name] for name in amounts}
            try:
                await lease.consume(**more)
                effect.certain(more)
            except RateLimitExceeded:
                self._in_doubt(effect, more, only_if=self.lossy and self.cascade)
            except RateLimiterUnavailable as error:
                self._gave_up(effect, more, error)
        elif plan == "release":
            part = {name: amount // 2 for name, amount in amounts.items()}
            held = lease.consumed
            try:
                await lease.release(**part)
                effect.certain(part, -1)
            except RateLimiterUnavailable:
                if lease.consumed != held:  # it may have been made, and is not made again
                    effect.possible(part, -1)

    async def _left(self, task, effect, amounts, asked):
        try:
            await task
            effect.entered += 1
            effect.certain(amounts)
        except asyncio.CancelledError:
            effect.maybe += 1
            if self.lossy:
                effect.possible(amounts)
        except RateLimitExceeded:
            effect.refused = asked
            self._in_doubt(effect, amounts, only_if=self.lossy and self.cascade)
        except RateLimiterUnavailable as error:
            self._gave_up(effect, amounts, error)

    def _gave_up(self, effect, amounts, error):
        """Without a fault only where too many others wrote; then nothing was charged."""
        crowded = type(error) is RateLimiterUnavailable
        self._in_doubt(effect, amounts, only_if=self.lossy or not crowded)

    def _in_doubt(self, effect, amounts, *, only_if):
        if only_if:
            assert self.lossy, "an outage without a reason"
            effect.maybe += 1
            effect.possible(amounts)

    # --- checks

    def _follow(self, effects):
        returned = Counter()
        for effect in effects:
            for name, amount in effect.returnable.items():
                returned[name] += 1000 * amount
        found = {USER: [], PARENT: []}
        requests, now_ms = self.measured.requests, self.world.clock()
        for exchange in requests[self._read :]:
            if exchange.operation == "UpdateItem":
                check_update(exchange.body)
            item = exchange.answer.get("Attributes")
            if exchange.operation == "UpdateItem" and item and "wc" in item:
                entity_id = USER if USER in item["GSI2SK"]["S"] else PARENT
                found[entity_id].append(item)
        self._read = len(requests)
        for entity_id, items in found.items():
            for item in sorted(items, key=lambda each: int(each["wc"]["N"])):
                self.replays[entity_id].follow(item, now_ms, returned)
                self.counts["writes"] += 1
        return [entity_id for entity_id, items in found.items() if items]

    def _check_totals(self, effects, before, admitted):
        for entity_id in (USER, PARENT) if self.cascade else (USER,):
            replay = self.replays[entity_id]
            item = self.world.item(entity_id)
            assert (item is None) == (replay.writes == 0)
            assert item is None or int(item["wc"]["N"]) == replay.writes
            names = ("rpm", "tpm") if entity_id == USER else ("rpm",)
            totals = replay.totals()
            for name in names:
                spent = totals[name] - before[entity_id][name]
                least = 1000 * sum(effect.least[name] for effect in effects)
                most = 1000 * sum(effect.most[name] for effect in effects)
                assert least <= spent <= most, (entity_id, name, least, spent, most)
            entered = sum(effect.entered for effect in effects)
            maybe = sum(effect.maybe for effect in effects)
            assert entered <= replay.admitted - admitted[entity_id] <= entered + maybe

    def _check_refusals(self, effects):
        """Without credits a level only falls: who was refused would be refused now."""
        if self.lossy or self.refusal_ttl or (self.cache_ttl and self.changed):
            return
        if any(effect.least[name] < 0 for effect in effects for name in ("rpm", "tpm")):
            return
        if any(effect.maybe for effect in effects) or len(effects) > 1:
            return
        now_ms = self.world.clock()
        for effect in effects:
            if effect.refused is not None:
                assert self._would_not_fit(*effect.refused, now_ms), (
                    effect.refused,
                    self.replays,
                    self.world.item(),
                    now_ms,
                )

    def _would_not_fit(self, limits, amounts, now_ms):
        asked = [(self.replays[USER], each) for each in limits]
        if self.cascade:
            asked += [(self.replays[PARENT], each) for each in self.parent_limits]
        return any(
            replay.level(limit, now_ms) < 1000 * amounts.get(limit.name, 0) + 10
            for replay, limit in asked
        )

    def _check_ttl(self, written):
        for entity_id in () if self.lossy else written:
            item = self.world.item(entity_id)
            if "ttl" in item:
                full = max(full_at_ms(item, limit) for limit in limits_of(item))
                assert int(item["ttl"]["N"]) * 1000 >= full, "it may be forgotten too early"


def _is_under_way(exchange):
    return exchange.ended is None or (exchange.fault == "late" and not exchange.raw_answer)


def _negated(amounts):
    return {name: -amount for name, amount in amounts.items()}
