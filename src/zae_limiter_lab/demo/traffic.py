"""A run and its callers: each makes one call at a time, estimates its cost, and settles it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from random import Random

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.clock import Clock
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter_lab.demo.invariant import Window
from zae_limiter_lab.demo.log import GrantLog, Moment
from zae_limiter_lab.demo.scenario import RESOURCE, DemoEntity, Habit, make_entities

PAUSE_SECONDS = 0.1  # average pause of a caller between two calls
LATENCY_SECONDS = (0.01, 0.06)  # shortest and longest answer of the simulated model
FAILURE_RATE = 0.03  # share of calls that the simulated model fails, so that some are refunded


@dataclass(slots=True)
class CallCounts:
    """How the calls charged to one entity have ended so far."""

    admitted: int = 0
    limited: int = 0
    adjusted: int = 0
    failed: int = 0
    refused_by: Counter[str] = field(default_factory=Counter)  # rejections by limit of this entity


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Duration, number of tenants and random seed of a run."""

    seconds: float = 10.0
    tenants: int = 4
    seed: int = 1


class DemoRun:
    """The state of a run, which its callers change and its views show."""

    def __init__(self, repository: Repository, options: DemoOptions, clock: Clock) -> None:
        self.options, self.clock = options, clock
        self.engine = repository.capabilities.engine
        self.limiter = RateLimiter(repository, clock=clock)
        self.entities = make_entities(options.tenants)
        self.counts = {entity.entity_id: CallCounts() for entity in self.entities}
        self.log = GrantLog()
        self.levels: dict[tuple[str, str], int] = {}  # by entity and limit; absent means full
        self.starts_at = asyncio.get_running_loop().time()
        self.seconds = 0.0
        self.lost_settlements = 0
        self.windows: list[Window] = []  # the fullest window of each limit, after the run

    @property
    def ends_at(self) -> float:
        """The end of the run on the event loop's clock."""
        return self.starts_at + self.options.seconds

    @property
    def total(self) -> CallCounts:
        """The sum over projects, which count the calls of their keys."""
        total = CallCounts()
        for project in (entity for entity in self.entities if entity.parent_id is None):
            counts = self.counts[project.entity_id]
            total.admitted += counts.admitted
            total.limited += counts.limited
            total.adjusted += counts.adjusted
            total.failed += counts.failed
        return total

    @property
    def violations(self) -> list[Window]:
        return [window for window in self.windows if not window.holds]


class ModelFailed(Exception):
    """The simulated model did not answer; the call costs nothing."""


class Caller:
    """One client of an API key."""

    def __init__(self, key: DemoEntity, habit: Habit, run: DemoRun, rng: Random) -> None:
        self._key, self._habit, self._run, self._rng = key, habit, run, rng
        self._buckets = (key.entity_id, str(key.parent_id))
        self._counts = [run.counts[entity_id] for entity_id in self._buckets]
        self._began_ms = 0

    async def run(self) -> None:
        """Call until the time is up."""
        while await self._pause(self._rng.expovariate(1 / PAUSE_SECONDS)):
            try:
                await self._call()
            except ModelFailed:
                pass
            except RateLimitExceeded as rejection:
                self._count_rejection(rejection)
                if self._habit.is_patient:
                    await self._pause(rejection.retry_after_seconds)

    async def _call(self) -> None:
        rng, habit = self._rng, self._habit
        cost = max(1, int(habit.tokens * rng.uniform(0.4, 1.6)))
        tokens = max(1, int(cost * habit.estimate_factor * rng.uniform(0.8, 1.2)))
        estimate = {"rpm": 1, "tpm": tokens}
        self._began_ms = self._run.clock()
        acquire = self._run.limiter.acquire(self._key.entity_id, RESOURCE, estimate)
        try:
            async with acquire as lease:
                self._count_grant(estimate)
                await asyncio.sleep(rng.uniform(*LATENCY_SECONDS))
                self._began_ms = self._run.clock()
                if rng.random() < FAILURE_RATE:
                    raise ModelFailed
                await lease.adjust(tpm=cost - tokens)
        except ModelFailed:
            self._count_settlement({"rpm": -1, "tpm": -tokens})
            for count in self._counts:
                count.failed += 1
            raise
        if cost != tokens:
            self._count_settlement({"tpm": cost - tokens})

    async def _pause(self, seconds: float) -> bool:
        """Sleep; return False once the run is over."""
        now, ends_at = asyncio.get_running_loop().time, self._run.ends_at
        await asyncio.sleep(min(seconds, ends_at - now()))
        return now() < ends_at

    def _moment(self) -> Moment:
        return Moment(self._began_ms, self._run.clock())

    def _count_grant(self, amounts: dict[str, int]) -> None:
        self._run.log.add_grant(self._buckets, RESOURCE, amounts, self._moment())
        for count in self._counts:
            count.admitted += 1

    def _count_settlement(self, amounts: dict[str, int]) -> None:
        self._run.log.add_settlement(self._buckets, RESOURCE, amounts, self._moment())
        for count in self._counts:
            count.adjusted += 1

    def _count_rejection(self, rejection: RateLimitExceeded) -> None:
        for count in self._counts:
            count.limited += 1
        for status in rejection.violations:
            self._run.counts[status.entity_id].refused_by[status.limit_name] += 1


def callers(key: DemoEntity, habit: Habit, run: DemoRun) -> list[Caller]:
    """Return as many callers as it takes for the call rate of the key's habit."""
    cycle_seconds = PAUSE_SECONDS + sum(LATENCY_SECONDS) / 2
    return [
        Caller(key, habit, run, Random(f"{run.options.seed}/{key.entity_id}/{number}"))
        for number in range(ceil(habit.calls_per_second * cycle_seconds))
    ]
