"""The precedence of configuration levels: all limits come from the first level that has any."""

from __future__ import annotations

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import ConfigSource, OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World

SYSTEM, RESOURCE = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)
DEFAULT, ENTITY = Limit.per_minute("rpm", 30), Limit.per_minute("rpm", 40)


class PrecedenceContract(Contract):
    """The order is: entity and resource, entity, resource, system."""

    @pytest.fixture
    async def levels(self, world: World) -> World:
        """A world in which all four levels are configured."""
        await world.repo.set_system_defaults([SYSTEM])
        await world.repo.set_resource_defaults(API, [RESOURCE])
        await world.repo.set_limits(USER, [DEFAULT])
        await world.repo.set_limits(USER, [ENTITY], API)
        return world

    async def test_the_strongest_level_wins(self, levels: World) -> None:
        cases = [
            (USER, API, ENTITY, ConfigSource.ENTITY),
            (USER, "other", DEFAULT, ConfigSource.ENTITY_DEFAULT),
            ("somebody", API, RESOURCE, ConfigSource.RESOURCE),
            ("somebody", "other", SYSTEM, ConfigSource.SYSTEM),
        ]
        for entity_id, resource, limit, source in cases:
            found = await levels.repo.resolve_limits(entity_id, resource)
            assert found == ([limit], None, source)
            await levels.take(entity_id, resource, rpm=limit.capacity)
            await levels.refusal(entity_id, resource, rpm=1)

    async def test_deleting_a_level_lets_the_next_one_apply(self, levels: World) -> None:
        assert await _capacity(levels) == 40
        await levels.repo.delete_limits(USER, API)
        assert await _capacity(levels) == 30
        await levels.repo.delete_limits(USER)
        assert await _capacity(levels) == 20
        await levels.repo.delete_resource_defaults(API)
        assert await _capacity(levels) == 10
        await levels.repo.delete_system_defaults()
        assert await levels.repo.resolve_limits(USER, API) == (None, None, None)

    async def test_the_winning_level_wins_whole(self, world: World) -> None:
        await world.configure(SYSTEM, Limit.per_minute("tpm", 100))
        await world.repo.set_limits(USER, [Limit.per_minute("rpd", 5)])
        with pytest.raises(ValidationError) as caught:
            await world.take(rpd=1, tpm=1)
        assert caught.value.field == "consume.tpm"
        assert await world.limiter.available(USER, API) == {"rpd": 5}

    async def test_without_any_limits_an_acquire_is_a_mistake(self, world: World) -> None:
        with pytest.raises(ValidationError) as caught:
            await world.take(rpm=1)
        assert caught.value.field == "limits"

    async def test_stored_limits_are_read_back_as_they_were_set(self, levels: World) -> None:
        repo = levels.repo
        assert await repo.get_limits(USER, API) == [ENTITY]
        assert await repo.get_limits(USER) == [DEFAULT]
        assert await repo.get_resource_defaults(API) == [RESOURCE]
        assert await repo.get_system_defaults() == ([SYSTEM], None)

    async def test_what_was_not_set_reads_as_empty(self, world: World) -> None:
        repo = world.repo
        assert await repo.get_limits(USER, API) == []
        assert await repo.get_resource_defaults(API) == []
        assert await repo.get_system_defaults() == ([], None)

    async def test_setting_replaces_all_limits_of_the_level(self, world: World) -> None:
        await world.configure(SYSTEM, Limit.per_minute("tpm", 100))
        await world.configure(Limit.per_minute("tpm", 50))
        assert await world.repo.get_system_defaults() == ([Limit.per_minute("tpm", 50)], None)

    async def test_the_order_of_limits_is_kept(self, world: World) -> None:
        limits = [Limit.per_minute(name, 10) for name in ("z", "a", "m", "b")]
        await world.repo.set_limits(USER, limits)
        assert await world.repo.get_limits(USER) == limits
        refusal = await world.refusal(z=11)
        assert [each.limit for each in refusal.statuses] == limits

    async def test_the_system_also_says_what_to_do_in_an_outage(self, world: World) -> None:
        await world.repo.set_system_defaults([SYSTEM], on_unavailable="allow")
        await world.repo.set_limits(USER, [DEFAULT])
        assert await world.repo.get_system_defaults() == ([SYSTEM], OnUnavailable.ALLOW)
        found = await world.repo.resolve_limits(USER, API)
        assert found == ([DEFAULT], OnUnavailable.ALLOW, ConfigSource.ENTITY_DEFAULT)

    async def test_the_policy_for_outages_is_kept_unless_it_is_named(self, world: World) -> None:
        await world.repo.set_system_defaults([SYSTEM], on_unavailable="allow")
        await world.repo.set_system_defaults([DEFAULT])
        assert await world.repo.get_system_defaults() == ([DEFAULT], OnUnavailable.ALLOW)
        assert (await world.repo.resolve_limits(USER, API))[1] is OnUnavailable.ALLOW
        events = await world.repo.get_audit_events("$SYSTEM")
        assert events[0].details["on_unavailable"] == "allow"
        await world.repo.set_system_defaults([SYSTEM], None)
        assert await world.repo.get_system_defaults() == ([SYSTEM], None)
        await world.repo.set_system_defaults([SYSTEM])
        assert await world.repo.get_system_defaults() == ([SYSTEM], None)

    async def test_resources_with_defaults_are_listed_in_order(self, world: World) -> None:
        for resource in ("gpt-4", "api", "gpt-3.5"):
            await world.repo.set_resource_defaults(resource, [RESOURCE])
        await world.configure(SYSTEM)
        await world.repo.set_limits(USER, [ENTITY], "mine")
        found = await world.repo.list_resources_with_defaults()
        assert found == ["api", "gpt-3.5", "gpt-4"]

    async def test_resources_with_limits_of_entities_are_listed_in_order(
        self, world: World
    ) -> None:
        for entity_id, resource in (("b", "x"), ("a", "x"), ("a", "c"), ("a", "_default_")):
            await world.repo.set_limits(entity_id, [ENTITY], resource)
        await world.repo.set_resource_defaults("only-default", [RESOURCE])
        assert await world.repo.list_resources_with_entity_configs() == ["_default_", "c", "x"]

    async def test_entities_with_custom_limits_come_in_pages(self, world: World) -> None:
        names = [f"user-{number}" for number in range(7)]
        for name in reversed(names):
            await world.repo.set_limits(name, [ENTITY], API)
        await world.repo.set_resource_defaults(API, [RESOURCE])
        await world.repo.set_limits("elsewhere", [ENTITY], "other")
        assert await world.repo.list_entities_with_custom_limits(API) == (names, None)
        pages, cursor = [], None
        while True:
            page, cursor = await world.repo.list_entities_with_custom_limits(API, 3, cursor)
            pages.append(page)
            if cursor is None:
                break
        assert pages == [names[:3], names[3:6], names[6:]]

    async def test_deleting_what_is_not_there_does_nothing(self, world: World) -> None:
        await world.repo.delete_limits(USER, API)
        await world.repo.delete_resource_defaults(API)
        await world.repo.delete_system_defaults()

    async def test_the_limiter_manages_limits_under_the_same_names(self, world: World) -> None:
        limiter = world.limiter
        await limiter.set_system_defaults([SYSTEM])
        await limiter.set_resource_defaults(API, [RESOURCE])
        await limiter.update_entity(USER, limits=[ENTITY])
        assert await limiter.get_limits(USER) == [ENTITY]
        assert await limiter.get_resource_defaults(API) == [RESOURCE]
        assert await limiter.get_system_defaults() == ([SYSTEM], None)


async def _capacity(world: World) -> int:
    limits, _, _ = await world.repo.resolve_limits(USER, API)
    assert limits is not None
    return limits[0].capacity
