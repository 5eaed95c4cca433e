"""A limiter may have a clock of its own, which then counts for all its calls."""

from __future__ import annotations

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World

RPM = Limit.per_minute("rpm", 60)


class ClockContract(Contract):
    """The limiter and its repository have different clocks."""

    async def test_a_limiter_may_bring_a_clock_of_its_own(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=60)
        later = FakeClock(world.clock() + 1000)
        limiter = RateLimiter(world.repo, clock=later)
        async with limiter.acquire(USER, API, {"rpm": 1}) as lease:
            later.advance(seconds=1)
            await lease.adjust(rpm=1)
        assert await limiter.available(USER, API) == {"rpm": 0}
        assert await world.tokens() == -2

    async def test_a_limiter_s_clock_governs_all_that_its_repository_answers(
        self, world: World
    ) -> None:
        """The clock of the repository is a year ahead and would show full buckets."""
        early = FakeClock(world.clock())
        world.clock.advance(days=365)
        limiter = RateLimiter(world.repo, clock=early)
        repository = limiter.repository
        assert repository is not None
        await limiter.set_system_defaults([RPM])
        async with limiter.acquire(USER, API, {"rpm": 40}):
            pass
        early.advance(seconds=10)
        assert await limiter.available(USER, API) == {"rpm": 30}
        assert (await limiter.get_resource_capacity(API, "rpm")).total_available == 30
        state = await repository.get_bucket(USER, API, "rpm")
        assert state is not None
        assert state.tokens == 30

        await repository.reset_bucket(USER, API)
        assert await limiter.available(USER, API) == {"rpm": 60}
        async with limiter.acquire(USER, API, {"rpm": 60}):
            pass
        await repository.top_up(USER, API, {"rpm": 7})
        assert await limiter.available(USER, API) == {"rpm": 7}

    async def test_changes_made_by_a_limiter_are_logged_at_its_clock(self, world: World) -> None:
        limiter = RateLimiter(world.repo, clock=FakeClock(world.clock()))
        world.clock.advance(days=365)
        await limiter.create_entity(USER)
        (event,) = await limiter.get_audit_events(USER)
        assert event.timestamp.startswith("2026-01-01T00:00:00")

    async def test_two_limiters_of_one_repository_may_have_different_clocks(
        self, world: World
    ) -> None:
        late = FakeClock(world.clock() + 30_000)
        await world.configure(RPM)
        await world.take(rpm=60)
        assert await RateLimiter(world.repo, clock=late).available(USER, API) == {"rpm": 30}
        assert await world.limiter.available(USER, API) == {"rpm": 0}
