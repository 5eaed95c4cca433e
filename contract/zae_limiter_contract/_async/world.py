"""A store, a clock and a limiter, with short methods for the calls that tests make often."""

from __future__ import annotations

import asyncio  # unasync: remove
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest

from zae_limiter._async.acquire import Acquire
from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.spec import EngineSpec

USER, API = "user-1", "api"
MOST_OPENINGS = 20  # within a moment, on a busy machine
WAIT_S = 30.0  # for what the background does; on a busy machine that may take a while


class Failure(Exception):
    """The error that a test raises in a block."""


@contextmanager
def failing(error: type[BaseException] = Failure) -> Iterator[None]:
    """A block that must fail."""
    with pytest.raises(error):
        yield


def require_usage_history(spec: EngineSpec) -> None:
    """Skip the test for an engine that does not promise a usage history."""
    if not spec.capabilities.usage_history:
        pytest.skip("this engine keeps no usage history")


def require_outage(spec: EngineSpec) -> AbstractContextManager[None]:
    """Return ``spec.outage()``; skip the test for an engine that has no outage."""
    outage = spec.outage()
    if outage is None:
        pytest.skip("this engine cannot fail that way")
    return outage


async def stored(repository: Repository) -> None:
    """Wait until the background has stored the ends of all blocks, or has given them up."""
    end = time.monotonic() + WAIT_S
    while repository.pending_settlements:
        assert time.monotonic() < end, "the end of a block was never stored"
        await asyncio.sleep(0.02)  # unasync: remove
        # sync: time.sleep(0.02)


class World:
    """One empty store. Amounts are keywords: ``await world.take(rpm=1)``."""

    def __init__(self, spec: EngineSpec, clock: FakeClock) -> None:
        self.spec = spec
        self.clock = clock
        self._opened: list[Repository] = []

    async def start(self) -> None:
        self.repo = await self.open()
        self.limiter = RateLimiter(self.repo)

    async def close(self) -> None:
        for repository in self._opened:
            await repository.close()

    async def open(self, namespace: str = "default", **settings: Any) -> Repository:
        """Open a repository that is closed after the test; skip if it would see other data."""
        if self._opened and not self.spec.shared:
            pytest.skip("every open of this engine leads to a store of its own")
        settings.setdefault("clock", self.clock)
        repository = await self.spec.open(namespace, **settings)
        self._opened.append(repository)
        return repository

    async def open_hasty(self, **settings: Any) -> Repository:
        """Open a repository that waits for a moment only, and has read the configuration."""
        for _ in range(MOST_OPENINGS):
            with suppress(RateLimiterUnavailable):
                repository = await self.open(request_timeout=self.spec.moment_s, **settings)
                await RateLimiter(repository).available(USER, API)
                return repository
        raise AssertionError("the store did not answer in time")

    async def configure(self, *limits: Limit) -> None:
        """Set the system defaults."""
        await self.repo.set_system_defaults(limits)

    # --- acquiring

    def acquire(
        self,
        entity_id: str = USER,
        resource: str = API,
        *,
        limits: Iterable[Limit] | None = None,
        **consume: int,
    ) -> Acquire:
        return self.limiter.acquire(entity_id, resource, consume, limits)

    async def take(
        self,
        entity_id: str = USER,
        resource: str = API,
        *,
        limits: Iterable[Limit] | None = None,
        **consume: int,
    ) -> None:
        """Make an acquire that must be granted."""
        async with self.acquire(entity_id, resource, limits=limits, **consume):
            pass

    async def granted(
        self,
        entity_id: str = USER,
        resource: str = API,
        *,
        limits: Iterable[Limit] | None = None,
        **consume: int,
    ) -> bool:
        """Tell whether an acquire is granted."""
        try:
            await self.take(entity_id, resource, limits=limits, **consume)
        except RateLimitExceeded:
            return False
        return True

    async def refusal(
        self,
        entity_id: str = USER,
        resource: str = API,
        *,
        limits: Iterable[Limit] | None = None,
        **consume: int,
    ) -> RateLimitExceeded:
        """Return the error of an acquire that must be rejected."""
        with pytest.raises(RateLimitExceeded) as caught:
            await self.take(entity_id, resource, limits=limits, **consume)
        return caught.value

    async def owe(self, entity_id: str = USER, resource: str = API, **amounts: int) -> None:
        """Adjust an empty acquire, so that the amount is a debt."""
        async with self.limiter.acquire(entity_id, resource, {}) as lease:
            await lease.adjust(**amounts)

    # --- looking

    async def level(
        self, limit_name: str = "rpm", entity_id: str = USER, resource: str = API
    ) -> int:
        """Return the millitokens in a bucket that exists."""
        state = await self.repo.get_bucket(entity_id, resource, limit_name)
        assert state is not None
        return state.tokens_milli

    async def spent(
        self, limit_name: str = "rpm", entity_id: str = USER, resource: str = API
    ) -> int:
        """Return the net tokens that a bucket has given out since it was created."""
        state = await self.repo.get_bucket(entity_id, resource, limit_name)
        return 0 if state is None else (state.total_consumed_milli or 0) // 1000

    async def tokens(
        self, limit_name: str = "rpm", entity_id: str = USER, resource: str = API
    ) -> float:
        """Return the tokens in a bucket that exists."""
        return await self.level(limit_name, entity_id, resource) / 1000
