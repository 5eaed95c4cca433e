"""Fixtures for pytest: a fake clock, and limiters on a memory store that use this clock.

pytest loads this module at its start if zae-limiter is installed. So the fixtures import the
modules that they need only when a test uses them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter.embedded.memory.store import MemoryStore
    from zae_limiter.testing.clock import FakeClock

T = TypeVar("T")

NAMESPACE = "default"  # even if the environment of the tests names another namespace


@pytest.fixture
def zae_clock() -> FakeClock:
    """Return the clock of the test's limiters: ``zae_clock.advance(minutes=1)``."""
    from zae_limiter.testing.clock import FakeClock

    return FakeClock()


@pytest.fixture
def _zae_store() -> MemoryStore:
    """Return the store that the limiters of one test share."""
    from zae_limiter.embedded.memory.store import MemoryStore

    return MemoryStore()


@pytest.fixture
def zae_rate_limiter(zae_clock: FakeClock, _zae_store: MemoryStore) -> Iterator[RateLimiter]:
    """Return a RateLimiter on an empty memory store that uses ``zae_clock``."""
    from zae_limiter._async.engines.embedded import EmbeddedEngine
    from zae_limiter._async.engines.memory import CAPABILITIES, USAGE_RETENTION_DAYS, MemoryClient
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter._async.repository import Repository
    from zae_limiter.settings import Settings

    engine = EmbeddedEngine(
        MemoryClient(_zae_store), CAPABILITIES, Settings(), USAGE_RETENTION_DAYS
    )
    repository = _run(Repository.over(engine, NAMESPACE, clock=zae_clock))
    yield RateLimiter(repository)
    _run(repository.close())


@pytest.fixture
def zae_sync_rate_limiter(
    zae_clock: FakeClock, _zae_store: MemoryStore
) -> Iterator[SyncRateLimiter]:
    """Return a SyncRateLimiter on the same store and clock as ``zae_rate_limiter``."""
    from zae_limiter._sync.engines.embedded import EmbeddedEngine
    from zae_limiter._sync.engines.memory import CAPABILITIES, USAGE_RETENTION_DAYS, MemoryClient
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.settings import Settings

    engine = EmbeddedEngine(
        MemoryClient(_zae_store), CAPABILITIES, Settings(), USAGE_RETENTION_DAYS
    )
    with SyncRepository.over(engine, NAMESPACE, clock=zae_clock) as repository:
        yield SyncRateLimiter(repository)


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the memory engine, which needs no event loop since it never waits.

    So the fixture works with every async plugin, and inside of a running loop.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the memory engine waited, but must not")
