"""Leases that cascade: each change of the child's bucket is made to the parent's as well."""

from __future__ import annotations

import pytest

from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import Failure, World, failing

KEY, TEAM = "key-1", "team"


class CascadeLeaseContract(Contract):
    """A lease settles in both buckets."""

    @pytest.fixture
    async def pair(self, world: World) -> World:
        """A key with the limit rpm, and its team with rpm and tpm."""
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await world.repo.set_limits(KEY, [Limit.per_minute("rpm", 10)])
        team = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 100)]
        await world.repo.set_limits(TEAM, team)
        return world

    async def test_an_exception_gives_both_their_tokens_back(self, pair: World) -> None:
        with failing():
            async with pair.acquire(KEY, rpm=3, tpm=10) as lease:
                await lease.consume(rpm=1)
                raise Failure
        assert await _levels(pair) == (10, 60, 100)

    async def test_an_adjustment_reaches_both(self, pair: World) -> None:
        async with pair.acquire(KEY, rpm=3) as lease:
            await lease.adjust(rpm=12, tpm=150)
        assert await _levels(pair) == (-5, 45, -50)

    async def test_a_negative_adjustment_reaches_both(self, pair: World) -> None:
        async with pair.acquire(KEY, rpm=3) as lease:
            await lease.adjust(rpm=-2)
        assert await _levels(pair) == (9, 59, 100)

    async def test_a_release_reaches_both_at_once(self, pair: World) -> None:
        async with pair.acquire(KEY, rpm=3, tpm=10) as lease:
            await lease.release(rpm=2, tpm=4)
            assert await _levels(pair) == (9, 59, 94)
        assert await _levels(pair) == (9, 59, 94)

    async def test_a_consume_charges_both_or_neither(self, pair: World) -> None:
        async with pair.acquire(KEY, rpm=3) as lease:
            await lease.consume(rpm=2, tpm=5)
            assert await _levels(pair) == (5, 55, 95)
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=1, tpm=96)
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=6, tpm=1)
            assert await _levels(pair) == (5, 55, 95)

    async def test_an_overfull_parent_swallows_no_debt(self, pair: World) -> None:
        async with pair.acquire(KEY, rpm=3) as lease:
            pair.clock.advance(days=365)
            await lease.adjust(rpm=70)
        assert await _levels(pair) == (-60, -10, 100)

    async def test_a_lease_settles_where_it_was_charged_although_the_entity_has_moved(
        self, pair: World
    ) -> None:
        await pair.repo.set_resource_defaults("api", [Limit.per_minute("rpm", 20)])
        async with pair.acquire(KEY, rpm=3) as lease:
            await pair.repo.delete_entity(KEY)
            await pair.repo.create_entity(KEY, parent_id="company", cascade=True)
            await lease.adjust(rpm=4)
        assert await pair.tokens("rpm", TEAM) == 53
        assert await pair.repo.get_buckets("company") == []

    async def test_a_lease_that_fails_after_the_parent_got_limits_credits_only_what_it_took(
        self, world: World
    ) -> None:
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await world.repo.set_limits(KEY, [Limit.per_minute("rpm", 10)])
        with failing():
            async with world.acquire(KEY, rpm=5):
                await world.repo.set_limits(TEAM, [Limit.per_minute("rpm", 60)])
                await world.take(TEAM, rpm=20)
                raise Failure
        assert await world.tokens("rpm", KEY) == 10
        assert await world.tokens("rpm", TEAM) == 40


async def _levels(world: World) -> tuple[float, float, float]:
    return (
        await world.tokens("rpm", KEY),
        await world.tokens("rpm", TEAM),
        await world.tokens("tpm", TEAM),
    )
