"""Cascades: an acquire charges the entity and its parent, or neither."""

from __future__ import annotations

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, World, require_usage_history

KEY_LIMIT, TEAM_LIMIT = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 15)
KEY, OTHER_KEY, TEAM, COMPANY = "key-1", "key-2", "team", "company"


class CascadeContract(Contract):
    """A cascade charges exactly the buckets of the entity and of its parent."""

    @pytest.fixture
    async def family(self, world: World) -> World:
        """Two keys of a team, with 10 a minute for each key and 15 for the team."""
        for key in (KEY, OTHER_KEY):
            await world.repo.create_entity(key, parent_id=TEAM, cascade=True)
            await world.repo.set_limits(key, [KEY_LIMIT])
        await world.repo.create_entity(TEAM)
        await world.repo.set_limits(TEAM, [TEAM_LIMIT])
        return world

    async def test_child_and_parent_are_both_charged(self, family: World) -> None:
        await family.take(KEY, rpm=4)
        await family.take(OTHER_KEY, rpm=3)
        assert await _levels(family) == (6, 7, 8)

    async def test_a_debt_of_a_child_is_used_once_in_totals(self, family: World) -> None:
        require_usage_history(family.spec)
        await family.take(KEY, rpm=2)
        async with family.acquire(KEY, rpm=1) as lease:
            await lease.adjust(rpm=24)  # more than both hold
        total = await family.repo.get_usage_summary(resource=API, window_type="hourly")
        assert total.total == {"rpm": 27}

    async def test_a_rejecting_parent_leaves_the_child_untouched(self, family: World) -> None:
        await family.take(KEY, rpm=10)
        await family.take(OTHER_KEY, rpm=1)
        refusal = await family.refusal(OTHER_KEY, rpm=5)
        assert [each.entity_id for each in refusal.violations] == [TEAM]
        assert await _levels(family) == (0, 9, 4)

    async def test_a_rejecting_child_leaves_the_parent_untouched(self, family: World) -> None:
        await family.take(KEY, rpm=9)
        refusal = await family.refusal(KEY, rpm=2)
        assert [each.entity_id for each in refusal.violations] == [KEY]
        assert await family.tokens("rpm", TEAM) == 6

    async def test_a_refusal_lists_the_limits_of_both(self, family: World) -> None:
        refusal = await family.refusal(KEY, rpm=16)
        found = [(each.entity_id, each.limit.capacity, each.exceeded) for each in refusal.statuses]
        assert found == [(KEY, 10, True), (TEAM, 15, True)]

    async def test_the_parent_itself_charges_only_itself(self, family: World) -> None:
        await family.take(TEAM, rpm=5)
        assert await family.tokens("rpm", TEAM) == 10
        assert await family.repo.get_buckets(KEY) == []

    async def test_a_child_without_cascade_does_not_charge_its_parent(self, world: World) -> None:
        await world.configure(KEY_LIMIT)
        await world.repo.create_entity(KEY, parent_id=TEAM)
        await world.take(KEY, rpm=1)
        assert await world.repo.get_buckets(TEAM) == []

    async def test_limits_of_the_call_reach_a_parent_without_stored_ones(
        self, world: World
    ) -> None:
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await world.take(KEY, limits=[KEY_LIMIT], rpm=4)
        assert await world.tokens("rpm", KEY) == 6
        assert await world.tokens("rpm", TEAM) == 6
        await world.take(TEAM, limits=[KEY_LIMIT], rpm=5)
        refusal = await world.refusal(KEY, limits=[KEY_LIMIT], rpm=2)
        assert [each.entity_id for each in refusal.violations] == [TEAM]

    async def test_limits_of_the_call_do_not_replace_those_of_the_parent(
        self, world: World
    ) -> None:
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await world.repo.set_limits(TEAM, [TEAM_LIMIT])
        await world.take(KEY, limits=[KEY_LIMIT], rpm=4)
        assert await world.tokens("rpm", KEY) == 6
        assert await world.tokens("rpm", TEAM) == 11

    async def test_cascade_ends_at_the_parent_whatever_its_own_flag_says(
        self, world: World
    ) -> None:
        await world.configure(KEY_LIMIT)
        await world.repo.create_entity(TEAM, parent_id=COMPANY, cascade=True)
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await world.take(KEY, rpm=1)
        assert await world.tokens("rpm", TEAM) == 9
        assert await world.repo.get_buckets(COMPANY) == []

    async def test_a_parent_without_limits_is_skipped(self, world: World) -> None:
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await world.repo.set_limits(KEY, [KEY_LIMIT])
        await world.take(KEY, rpm=10)
        assert await world.repo.get_buckets(TEAM) == []
        refusal = await world.refusal(KEY, rpm=1)
        assert [each.entity_id for each in refusal.statuses] == [KEY]

    async def test_a_parent_that_is_no_entity_is_charged_by_the_defaults(
        self, world: World
    ) -> None:
        await world.configure(KEY_LIMIT)
        await world.repo.create_entity(KEY, parent_id="nobody", cascade=True)
        await world.take(KEY, rpm=4)
        assert await world.tokens("rpm", "nobody") == 6

    async def test_an_unknown_entity_has_no_parent(self, world: World) -> None:
        await world.configure(KEY_LIMIT)
        await world.take("stranger", rpm=1)
        assert len(await world.repo.get_resource_buckets(API)) == 1

    async def test_each_bucket_is_charged_for_the_limits_that_it_has(self, world: World) -> None:
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=True)
        await world.repo.set_limits(KEY, [KEY_LIMIT])
        await world.repo.set_limits(TEAM, [Limit.per_minute("tpm", 100)])
        async with world.acquire(KEY, rpm=1, tpm=30) as lease:
            assert lease.consumed == {"rpm": 1, "tpm": 30}
        assert await world.tokens("rpm", KEY) == 9
        assert await world.tokens("tpm", TEAM) == 70
        assert await world.repo.get_bucket(KEY, API, "tpm") is None

    async def test_a_limit_that_neither_has_is_a_mistake(self, family: World) -> None:
        with pytest.raises(ValidationError) as caught:
            await family.take(KEY, tpm=1)
        assert caught.value.field == "consume.tpm"
        assert await family.repo.get_resource_buckets(API) == []

    async def test_a_debt_of_the_parent_blocks_the_child_also_in_a_limit_not_asked_for(
        self, family: World
    ) -> None:
        await family.repo.set_limits(TEAM, [TEAM_LIMIT, Limit.per_minute("tpm", 60)])
        await family.owe(TEAM, tpm=70)
        refusal = await family.refusal(KEY, rpm=1)
        assert [(v.entity_id, v.limit_name) for v in refusal.violations] == [(TEAM, "tpm")]
        family.clock.advance(seconds=10)
        await family.take(KEY, rpm=1)

    async def test_what_is_available_is_the_smaller_of_both(self, family: World) -> None:
        assert await family.limiter.available(KEY, API) == {"rpm": 10}
        await family.take(OTHER_KEY, rpm=9)
        assert await family.limiter.available(KEY, API) == {"rpm": 6}

    async def test_a_child_created_anew_under_another_parent_charges_that_one(
        self, family: World
    ) -> None:
        await family.take(KEY, rpm=1)
        await family.repo.delete_entity(KEY)
        await family.repo.create_entity(KEY, parent_id=COMPANY, cascade=True)
        await family.repo.set_resource_defaults(API, [TEAM_LIMIT])
        await family.take(KEY, rpm=2)
        assert await family.tokens("rpm", COMPANY) == 13
        assert await family.tokens("rpm", TEAM) == 14

    async def test_limits_of_the_call_apply_to_the_child_not_to_the_parent(
        self, family: World
    ) -> None:
        await family.take(KEY, limits=[Limit.per_minute("rpm", 100)], rpm=12)
        assert await family.tokens("rpm", TEAM) == 3
        await family.refusal(KEY, limits=[Limit.per_minute("rpm", 100)], rpm=4)

    @pytest.mark.parametrize("cascade", [True, False])
    async def test_the_deprecated_keyword_overrides_the_entity_and_warns(
        self, world: World, cascade: bool
    ) -> None:
        await world.configure(KEY_LIMIT)
        await world.repo.create_entity(KEY, parent_id=TEAM, cascade=not cascade)
        with pytest.warns(DeprecationWarning, match="cascade"):
            acquire = world.limiter.acquire(KEY, API, {"rpm": 1}, cascade=cascade)
        async with acquire:
            pass
        assert bool(await world.repo.get_buckets(TEAM)) is cascade


async def _levels(world: World) -> tuple[float, float, float]:
    return (
        await world.tokens("rpm", KEY),
        await world.tokens("rpm", OTHER_KEY),
        await world.tokens("rpm", TEAM),
    )
