"""Own changes of configuration take effect at once, those of other clients within the TTL."""

from __future__ import annotations

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World

FIVE, TEN, TWENTY = (Limit.per_minute("rpm", capacity) for capacity in (5, 10, 20))
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
        world.clock.advance(ms=TTL * 800 - 1)
        assert await _capacity(world.repo) == 10
        world.clock.advance(ms=TTL * 200 + 1)
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

    async def test_questions_agree_with_acquire_when_another_client_changed_the_limits(
        self, world: World
    ) -> None:
        await world.configure(Limit.per_minute("rpm", 100))
        assert await world.limiter.available(USER, API) == {"rpm": 100}
        other = RateLimiter(await world.open())
        await other.set_system_defaults([FIVE])
        async with other.acquire(USER, API, {"rpm": 1}):
            pass
        found = await world.limiter.check_availability(USER, API, {"rpm": 6})
        assert (found.available, found.retry_after_seconds) == (False, float("inf"))
        assert await world.limiter.time_until_available(USER, API, {"rpm": 5}) == 12
        assert await world.limiter.available(USER, API) == {"rpm": 4}
        assert (await world.refusal(rpm=5)).retry_after_seconds == 12

    async def test_questions_agree_with_acquire_when_another_client_changed_the_parent_s_limits(
        self, world: World
    ) -> None:
        await world.configure(Limit.per_minute("rpm", 100))
        await world.repo.create_entity(USER, parent_id="team", cascade=True)
        await world.take(rpm=1)
        other = RateLimiter(await world.open())
        await other.set_limits("team", [FIVE], API)
        async with other.acquire("team", API, {"rpm": 1}):
            pass
        wait = await world.limiter.time_until_available(USER, API, {"rpm": 6})
        assert wait == float("inf")
        assert (await world.refusal(rpm=6)).retry_after_seconds == float("inf")

    async def test_own_changes_are_seen_at_once_by_a_limiter_with_a_ttl_multiplier_of_its_own(
        self, world: World
    ) -> None:
        with pytest.warns(DeprecationWarning, match="ttl"):
            limiter = RateLimiter(world.repo, bucket_ttl_refill_multiplier=3)
        await world.configure(TEN)
        assert await limiter.available(USER, API) == {"rpm": 10}
        await world.repo.set_limits(USER, [TWENTY], API)
        assert await limiter.available(USER, API) == {"rpm": 20}

    async def test_a_new_or_deleted_entity_is_seen_at_once_by_its_own_client(
        self, world: World
    ) -> None:
        await world.configure(TEN)
        await world.repo.set_limits("team", [FIVE])
        assert await world.limiter.available(USER, API) == {"rpm": 10}
        await world.repo.create_entity(USER, parent_id="team", cascade=True)
        assert await world.limiter.available(USER, API) == {"rpm": 5}
        await world.repo.delete_entity(USER)
        assert await world.limiter.available(USER, API) == {"rpm": 10}

    async def test_a_change_of_an_entity_evicts_nothing_but_that_entity(self, world: World) -> None:
        await world.configure(TEN)
        for number in range(20):
            for resource in (API, "mail"):
                await world.limiter.available(f"user-{number}", resource)
        await world.repo.create_entity("user-7")
        await world.repo.set_limits("user-8", [FIVE])
        await world.repo.delete_entity("user-9")
        before = world.repo.get_cache_stats()
        assert before.size == 2 * 17
        for number in range(7):
            await world.limiter.available(f"user-{number}", API)
        assert world.repo.get_cache_stats().hits == before.hits + 7

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
