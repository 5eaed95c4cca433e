"""The callers: each makes one call at a time, guesses its cost, and settles the truth."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from random import Random

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.clock import Clock
from zae_limiter.demo.log import GrantLog, Stopwatch
from zae_limiter.demo.scenario import RESOURCE, Key
from zae_limiter.exceptions import RateLimitExceeded

PAUSE_SECONDS = 0.1  # of a caller between two calls, on average
LATENCY_SECONDS = (0.01, 0.06)  # of the simulated model
FAILURES = 0.03  # of its calls
BURST_EVERY_SECONDS, BURST_SECONDS = 2.5, 1.0


@dataclass(slots=True)
class Tally:
    """What the callers of one entity have met so far."""

    admitted: int = 0
    limited: int = 0
    adjusted: int = 0
    failed: int = 0
    refused_by: Counter[str] = field(default_factory=Counter)  # per limit of this entity


@dataclass(frozen=True, slots=True)
class Stage:
    """What all callers share."""

    repository: Repository
    log: GrantLog
    tallies: dict[str, Tally]
    clock: Clock
    starts_at: float  # on the event loop's clock
    ends_at: float


class ModelFailed(Exception):
    """The simulated model did not answer; the call costs nothing."""


class Caller:
    """One client of a key."""

    def __init__(self, key: Key, stage: Stage, dice: Random) -> None:
        self._key = key
        self._stage = stage
        self._dice = dice
        self._buckets = (key.entity_id, key.parent_id)
        self._tallies = [stage.tallies[entity_id] for entity_id in self._buckets]
        self._stopwatch = Stopwatch(stage.clock)
        self._limiter = RateLimiter(stage.repository, clock=self._stopwatch)

    async def run(self) -> None:
        """Call until the time is up."""
        while await self._pause(self._dice.expovariate(1 / PAUSE_SECONDS)):
            try:
                await self._call()
            except RateLimitExceeded as rejection:
                self._count_rejection(rejection)
                if self._key.habit.patient and not await self._pause(rejection.retry_after_seconds):
                    return
            except ModelFailed:
                pass

    async def _call(self) -> None:
        dice, habit = self._dice, self._key.habit
        cost = max(1, int(habit.tokens * dice.uniform(0.4, 1.6)))
        estimate = {"rpm": 1, "tpm": max(1, int(cost * habit.guess * dice.uniform(0.8, 1.2)))}
        difference = {"tpm": cost - estimate["tpm"]}
        self._stopwatch.start()
        try:
            async with self._limiter.acquire(self._key.entity_id, RESOURCE, estimate) as lease:
                self._count_grant(estimate)
                await asyncio.sleep(dice.uniform(*LATENCY_SECONDS))
                if dice.random() < FAILURES:
                    difference = {name: -tokens for name, tokens in estimate.items()}
                    raise ModelFailed
                await lease.adjust(**difference)
                self._stopwatch.start()
        except ModelFailed:
            self._count_settlement(difference, failed=True)
            raise
        self._count_settlement(difference)

    async def _pause(self, seconds: float) -> bool:
        """False once the time is up."""
        loop, stage = asyncio.get_running_loop(), self._stage
        until = loop.time() + seconds
        if self._key.habit.bursts:
            until = _next_burst(until - stage.starts_at) + stage.starts_at
        await asyncio.sleep(min(until, stage.ends_at) - loop.time())
        return loop.time() < stage.ends_at

    def _count_grant(self, amounts: dict[str, int]) -> None:
        self._stage.log.granted(self._buckets, RESOURCE, amounts, self._stopwatch.stop())
        for tally in self._tallies:
            tally.admitted += 1

    def _count_settlement(self, amounts: dict[str, int], *, failed: bool = False) -> None:
        if not any(amounts.values()):
            return
        self._stage.log.settled(self._buckets, RESOURCE, amounts, self._stopwatch.stop())
        for tally in self._tallies:
            tally.adjusted += 1
            tally.failed += failed

    def _count_rejection(self, rejection: RateLimitExceeded) -> None:
        for tally in self._tallies:
            tally.limited += 1
        for status in rejection.violations:
            self._stage.tallies[status.entity_id].refused_by[status.limit_name] += 1


def callers(key: Key, stage: Stage, seed: int) -> Iterator[Caller]:
    """As many as it takes to make the calls that the key's habit asks for."""
    cycle_seconds = PAUSE_SECONDS + sum(LATENCY_SECONDS) / 2
    for number in range(ceil(key.habit.calls_per_second * cycle_seconds)):
        yield Caller(key, stage, Random(f"{seed}/{key.entity_id}/{number}"))


def _next_burst(at: float) -> float:
    """``at`` if it falls into a burst, otherwise when the next one begins."""
    into = at % BURST_EVERY_SECONDS
    return at if into < BURST_SECONDS else at - into + BURST_EVERY_SECONDS
