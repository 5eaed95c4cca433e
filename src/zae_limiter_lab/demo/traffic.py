"""The callers: each makes one call at a time, estimates its cost, and settles the true cost."""

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
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter_lab.demo.log import GrantLog, Stopwatch
from zae_limiter_lab.demo.scenario import RESOURCE, ApiKey

PAUSE_SECONDS = 0.1  # average pause of a caller between two calls
LATENCY_SECONDS = (0.01, 0.06)  # shortest and longest answer of the simulated model
FAILURE_RATE = 0.03  # share of calls that the simulated model fails, so that some are refunded
# The pause between bursts lets buckets fill up, so that each burst starts with a full one.
BURST_EVERY_SECONDS, BURST_SECONDS = 2.5, 1.0


@dataclass(slots=True)
class CallCounts:
    """How the calls charged to one entity have ended so far."""

    admitted: int = 0
    limited: int = 0
    adjusted: int = 0
    failed: int = 0
    refused_by: Counter[str] = field(default_factory=Counter)  # rejections by limit of this entity


@dataclass(frozen=True, slots=True)
class TrafficContext:
    """What all callers of a run share."""

    repository: Repository
    log: GrantLog
    counts: dict[str, CallCounts]
    clock: Clock
    starts_at: float  # on the event loop's clock
    ends_at: float


class ModelFailed(Exception):
    """The simulated model did not answer; the call costs nothing."""


class Caller:
    """One client of an API key."""

    def __init__(self, key: ApiKey, context: TrafficContext, rng: Random) -> None:
        self._key = key
        self._context = context
        self._rng = rng
        self._buckets = (key.entity_id, key.parent_id)
        self._counts = [context.counts[entity_id] for entity_id in self._buckets]
        self._stopwatch = Stopwatch(context.clock)
        self._limiter = RateLimiter(context.repository, clock=self._stopwatch)

    async def run(self) -> None:
        """Call until the time is up."""
        while await self._pause(self._rng.expovariate(1 / PAUSE_SECONDS)):
            try:
                await self._call()
            except RateLimitExceeded as rejection:
                self._count_rejection(rejection)
                if self._key.habit.patient and not await self._pause(rejection.retry_after_seconds):
                    return
            except ModelFailed:
                pass

    async def _call(self) -> None:
        rng, habit = self._rng, self._key.habit
        cost = max(1, int(habit.tokens * rng.uniform(0.4, 1.6)))
        estimate = {
            "rpm": 1,
            "tpm": max(1, int(cost * habit.estimate_factor * rng.uniform(0.8, 1.2))),
        }
        difference = {"tpm": cost - estimate["tpm"]}
        self._stopwatch.start()
        try:
            async with self._limiter.acquire(self._key.entity_id, RESOURCE, estimate) as lease:
                self._count_grant(estimate)
                await asyncio.sleep(rng.uniform(*LATENCY_SECONDS))
                if rng.random() < FAILURE_RATE:
                    difference = {name: -tokens for name, tokens in estimate.items()}
                    raise ModelFailed
                await lease.adjust(**difference)
                self._stopwatch.start()
        except ModelFailed:
            self._count_settlement(difference, failed=True)
            raise
        self._count_settlement(difference)

    async def _pause(self, seconds: float) -> bool:
        """Sleep; returns False once the run is over."""
        loop, context = asyncio.get_running_loop(), self._context
        until = loop.time() + seconds
        if self._key.habit.bursts:
            until = _next_burst(until - context.starts_at) + context.starts_at
        await asyncio.sleep(min(until, context.ends_at) - loop.time())
        return loop.time() < context.ends_at

    def _count_grant(self, amounts: dict[str, int]) -> None:
        self._context.log.add_grant(self._buckets, RESOURCE, amounts, self._stopwatch.stop())
        for count in self._counts:
            count.admitted += 1

    def _count_settlement(self, amounts: dict[str, int], *, failed: bool = False) -> None:
        if not any(amounts.values()):
            return
        self._context.log.add_settlement(self._buckets, RESOURCE, amounts, self._stopwatch.stop())
        for count in self._counts:
            count.adjusted += 1
            count.failed += failed

    def _count_rejection(self, rejection: RateLimitExceeded) -> None:
        for count in self._counts:
            count.limited += 1
        for status in rejection.violations:
            self._context.counts[status.entity_id].refused_by[status.limit_name] += 1


def callers(key: ApiKey, context: TrafficContext, seed: int) -> Iterator[Caller]:
    """Yield as many callers as it takes for the call rate of the key's habit."""
    cycle_seconds = PAUSE_SECONDS + sum(LATENCY_SECONDS) / 2
    for number in range(ceil(key.habit.calls_per_second * cycle_seconds)):
        yield Caller(key, context, Random(f"{seed}/{key.entity_id}/{number}"))


def _next_burst(at: float) -> float:
    """Return ``at`` if it falls into a burst, otherwise the start of the next burst."""
    offset = at % BURST_EVERY_SECONDS
    return at if offset < BURST_SECONDS else at - offset + BURST_EVERY_SECONDS
