"""How soon a change of configuration is seen: own changes at once, others' within the TTL."""

from __future__ import annotations

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract._async.base import Contract
from zae_limiter.testing.contract._async.world import API, USER, World

TEN, TWENTY = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)
TTL = 60


class ReachContract(Contract):
    """The configuration cache."""

    async def test_own_changes_are_seen_at_once(self, world: World) -> None:
        await world.configure(TEN)
        await world.take(rpm=1)
        await world.repo.set_limits(USER, [TWENTY])
        assert await _capacity(world.repo) == 20
        await world.repo.delete_limits(USER)
        assert await _capacity(world.repo) == 10
        await world.repo.set_resource_defaults(API, [TWENTY])
        assert await _capacity(world.repo) == 20
        await world.repo.delete_resource_defaults(API)
        await world.configure(TWENTY)
        assert await _capacity(world.repo) == 20

    async def test_own_changes_are_seen_at_once_by_scoped_repositories_with_other_settings(
        self, world: World
    ) -> None:
        await world.configure(TEN)
        scoped = await world.repo.namespace("default", bucket_ttl_multiplier=3)
        assert await _capacity(scoped) == 10
        await world.repo.set_limits(USER, [TWENTY])
        assert await _capacity(scoped) == 20
        await scoped.delete_limits(USER)
        assert await _capacity(world.repo) == 10

    async def test_changes_of_others_are_seen_when_the_ttl_has_passed_and_not_later(
        self, world: World
    ) -> None:
        await world.configure(TEN)
        await world.take(rpm=10)
        other = await world.open()
        await other.set_system_defaults([TWENTY])
        world.clock.advance(ms=TTL * 1000 - 1)
        assert await _capacity(world.repo) == 10
        world.clock.advance(ms=1)
        assert await _capacity(world.repo) == 20
        await world.take(rpm=1)
        state = await world.repo.get_bucket(USER, API, "rpm")
        assert state is not None
        assert state.limit == TWENTY

    async def test_a_bucket_that_others_have_brought_up_to_date_tells_of_it_at_once(
        self, world: World
    ) -> None:
        await world.configure(TEN)
        await world.take(rpm=4)
        other = RateLimiter(await world.open())
        await other.set_system_defaults([TWENTY])
        async with other.acquire(USER, API, {"rpm": 1}):
            pass
        await world.take(rpm=1)
        assert await _capacity(world.repo) == 20
        assert await world.tokens() == 4

    async def test_clients_that_know_different_versions_neither_flap_nor_mint(
        self, world: World
    ) -> None:
        await world.configure(TEN)
        await world.take(rpm=4)
        other = RateLimiter(await world.open())
        await other.set_system_defaults([TWENTY])
        granted = 0
        for _ in range(10):
            for limiter in (other, world.limiter):
                found = await limiter.check_availability(USER, API, {"rpm": 1})
                if found:
                    async with limiter.acquire(USER, API, {"rpm": 1}):
                        granted += 1
                state = await world.repo.get_bucket(USER, API, "rpm")
                assert state is not None
                assert state.capacity == 20
        assert granted == 6

    async def test_that_nothing_is_stored_is_remembered_too(self, world: World) -> None:
        with pytest.raises(ValidationError):
            await world.take(rpm=1)
        other = await world.open()
        await other.set_system_defaults([TEN])
        with pytest.raises(ValidationError):
            await world.take(rpm=1)
        world.clock.advance(seconds=TTL)
        await world.take(rpm=1)

    async def test_a_new_entity_of_others_is_seen_within_the_ttl(self, world: World) -> None:
        await world.configure(TEN)
        await world.take("child", rpm=1)
        other = await world.open()
        await other.create_entity("child", parent_id="parent", cascade=True)
        world.clock.advance(seconds=TTL)
        await world.take("child", rpm=1)
        assert await world.tokens("rpm", "parent") == 9

    async def test_invalidating_shows_changes_of_others_at_once(self, world: World) -> None:
        await world.configure(TEN)
        await world.take(rpm=1)
        other = await world.open()
        await other.set_system_defaults([TWENTY])
        await world.repo.invalidate_config_cache()
        assert await _capacity(world.repo) == 20

    async def test_without_a_ttl_every_acquire_reads_anew(self, world: World) -> None:
        eager = RateLimiter(await world.open(config_cache_ttl=0))
        await world.configure(TEN)
        assert await eager.available(USER, API) == {"rpm": 10}
        await world.configure(Limit.per_minute("rpm", 5))
        assert await eager.available(USER, API) == {"rpm": 5}

    async def test_the_statistics_count_hits_and_misses(self, world: World) -> None:
        await world.configure(TEN)
        before = world.repo.get_cache_stats()
        for _ in range(5):
            await world.take(rpm=1)
        after = world.repo.get_cache_stats()
        assert (after.hits - before.hits, after.misses - before.misses) == (4, 1)
        assert after.size == 1
        assert after.ttl_seconds == TTL
        await world.repo.invalidate_config_cache()
        assert world.repo.get_cache_stats().size == 0

    async def test_scoped_repositories_do_not_mix_up_what_they_remember(self, world: World) -> None:
        await world.repo.register_namespace("second")
        second = await world.repo.namespace("second")
        await world.configure(TEN)
        await second.set_system_defaults([TWENTY])
        for _ in range(2):
            assert await _capacity(world.repo) == 10
            assert await _capacity(second) == 20


async def _capacity(repository: Repository) -> int:
    limits, _, _ = await repository.resolve_limits(USER, API)
    assert limits is not None
    return limits[0].capacity
