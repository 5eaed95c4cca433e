"""One random call of one client, and what it may have done to the buckets."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from tests.support.dynamodb.world import Failure
from zae_limiter import RateLimiterUnavailable, RateLimitExceeded

AMOUNTS = (0, 1, 1, 2, 3, 5)
DEBTS = (7, 7, 7, 14, 70)
MORE = {"rpm": 2, "tpm": 1}
PLANS = ("keep", "keep", "fail", "debt", "credit", "release", "consume", "leave")


@dataclass
class Effect:
    """On net consumption, at least and at most, in tokens by name.

    ``maybe`` counts admissions that nobody knows of, ``refused`` is set if it did not fit.
    """

    least: Counter = field(default_factory=Counter)
    most: Counter = field(default_factory=Counter)
    entered: int = 0
    maybe: int = 0
    refused: bool = False

    def certain(self, amounts):
        for name, amount in amounts.items():
            self.least[name] += amount
            self.most[name] += amount

    def possible(self, amounts):
        for name, amount in amounts.items():
            self.least[name] += min(0, amount)
            self.most[name] += max(0, amount)


class Call:
    """``lossy`` says that there are faults, ``cascades`` that another bucket is charged, too."""

    def __init__(self, rng, client, variants, *, lossy, cascades):
        names = rng.choice((("rpm",), ("tpm",), ("rpm", "tpm"), ("rpm", "tpm")))
        self.client, self.lossy, self.cascades = client, lossy, cascades
        self.amounts = {name: rng.choice(AMOUNTS) for name in names}
        self.limits = None
        if rng.random() < 0.2:
            self.limits = [each for each in rng.choice(variants) if each.name in names]
        self.plan, self.debt = rng.choice(PLANS), rng.choice(DEBTS)
        self.patience_s = 0.02 * rng.random()
        self.effect = Effect()

    @property
    def returnable(self):
        """The most that it can give back."""
        return Counter(self.amounts) + Counter(MORE)

    async def run(self):
        try:
            if self.plan == "leave":
                await self._leave()
            else:
                await self._stay()
        except RateLimitExceeded:
            self.effect.refused = True
            self._in_doubt(self.amounts, only_if=self.lossy and self.cascades)
        except RateLimiterUnavailable as error:
            self._gave_up(self.amounts, error)
        return self.effect

    async def _leave(self):
        """Go away while the charge is under way."""
        task = asyncio.ensure_future(self._pass())
        await asyncio.sleep(self.patience_s)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            self.effect.maybe += 1
            if self.lossy:
                self.effect.possible(self.amounts)
        else:
            self._entered()

    async def _pass(self):
        async with self.client.acquire(limits=self.limits, **self.amounts):
            pass

    async def _stay(self):
        lost, settled = self.client.repo.lost_settlements, {}
        try:
            async with self.client.acquire(limits=self.limits, **self.amounts) as lease:
                self._entered()
                settled = await self._inside(lease)
                if self.plan in ("fail", "release"):
                    settled = negated(lease.consumed)
                    raise Failure
        except Failure:
            pass
        if await stored(self.client.repo) and self.client.repo.lost_settlements == lost:
            self.effect.certain(settled)
        else:
            assert self.lossy, "a settlement was lost without a reason"
            self.effect.possible(settled)

    async def _inside(self, lease):
        """What is settled at the end of the block."""
        settled = {}
        if self.plan in ("debt", "credit"):
            debts = dict.fromkeys(self.amounts, self.debt)
            settled = debts if self.plan == "debt" else negated(self.amounts)
            await lease.adjust(**settled)
        elif self.plan == "consume":
            await self._consume(lease, {name: MORE[name] for name in self.amounts})
        elif self.plan == "release":
            await self._release(lease, {name: each // 2 for name, each in self.amounts.items()})
        return settled

    async def _consume(self, lease, more):
        try:
            await lease.consume(**more)
            self.effect.certain(more)
        except RateLimitExceeded:
            self._in_doubt(more, only_if=self.lossy and self.cascades)
        except RateLimiterUnavailable as error:
            self._gave_up(more, error)

    async def _release(self, lease, part):
        held = lease.consumed
        try:
            await lease.release(**part)
            self.effect.certain(negated(part))
        except RateLimiterUnavailable:
            if lease.consumed != held:  # it may have been made, and is not made again
                self.effect.possible(negated(part))

    def _entered(self):
        self.effect.entered += 1
        self.effect.certain(self.amounts)

    def _gave_up(self, amounts, error):
        """Without a fault only where too many others wrote; then nothing was charged."""
        crowded = type(error) is RateLimiterUnavailable
        self._in_doubt(amounts, only_if=self.lossy or not crowded)

    def _in_doubt(self, amounts, *, only_if):
        if only_if:
            assert self.lossy, "an outage without a reason"
            self.effect.maybe += 1
            self.effect.possible(amounts)


def negated(amounts):
    return {name: -amount for name, amount in amounts.items()}


async def stored(repo):
    """Wait a moment until the ends of blocks are stored; say whether they are."""
    for _ in range(200):
        if not repo.pending_settlements:
            return True
        await asyncio.sleep(0.005)
    return False
