"""An entity gets another parent while it is in use."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from zae_limiter.exceptions import EntityNotFoundError, ValidationError
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, World
from zae_limiter_contract.together import agather

KEY, TEAM, OTHER_TEAM = "key-1", "team", "other-team"
CONCURRENT_CHANGES = 5


class ParentContract(Contract):
    """After a change of the parent, buckets stay, and the next acquires charge the new parent."""

    @pytest.fixture
    async def relocatable(self, world: World) -> World:
        """A key in use that cascades to a team, with ten a minute for every entity."""
        await world.configure(Limit.per_minute("rpm", 10))
        for team in (TEAM, OTHER_TEAM):
            await world.repo.create_entity(team)
        await world.repo.create_entity(
            KEY, name="Key", parent_id=TEAM, cascade=True, metadata={"tier": "gold"}
        )
        await world.take(KEY, rpm=3)
        return world

    async def test_the_next_acquires_charge_the_new_parent(self, relocatable: World) -> None:
        changed = await relocatable.repo.set_parent(KEY, OTHER_TEAM)
        await relocatable.take(KEY, rpm=2)
        assert await _levels(relocatable) == {KEY: 5, TEAM: 7, OTHER_TEAM: 8}
        assert (changed.parent_id, changed.cascade) == (OTHER_TEAM, True)

    async def test_everything_else_about_the_entity_stays(self, relocatable: World) -> None:
        before = await relocatable.repo.get_entity(KEY)
        assert before is not None
        changed = await relocatable.repo.set_parent(KEY, OTHER_TEAM, cascade=False)
        assert changed == await relocatable.repo.get_entity(KEY)
        assert changed == Entity(
            KEY, before.name, OTHER_TEAM, False, before.metadata, before.created_at
        )
        assert await relocatable.tokens("rpm", KEY) == 7

    async def test_children_are_listed_under_the_new_parent(self, relocatable: World) -> None:
        changed = await relocatable.repo.set_parent(KEY, OTHER_TEAM)
        assert await relocatable.repo.get_children(TEAM) == []
        assert await relocatable.repo.get_children(OTHER_TEAM) == [changed]

    @for_each("cascade", [True, False])
    async def test_without_a_parent_it_is_charged_alone(
        self, relocatable: World, cascade: bool
    ) -> None:
        await relocatable.repo.set_parent(KEY, TEAM)
        before = await _levels(relocatable)
        alone = await relocatable.repo.set_parent(KEY, None, cascade)
        assert (alone.parent_id, alone.cascade) == (None, False)
        assert await relocatable.repo.get_children(TEAM) == []
        await relocatable.take(KEY, rpm=1)
        assert await _levels(relocatable) == {**before, KEY: before[KEY] - 1}

    async def test_the_cascade_of_a_parent_can_be_switched(self, relocatable: World) -> None:
        await relocatable.repo.set_parent(KEY, TEAM, cascade=False)
        await relocatable.take(KEY, rpm=1)
        assert await _levels(relocatable) == {KEY: 6, TEAM: 7}
        await relocatable.repo.set_parent(KEY, TEAM)
        await relocatable.take(KEY, rpm=1)
        assert await _levels(relocatable) == {KEY: 5, TEAM: 6}

    async def test_a_lease_settles_with_the_parent_that_it_has_charged(
        self, relocatable: World
    ) -> None:
        async with relocatable.acquire(KEY, rpm=2) as lease:
            await relocatable.repo.set_parent(KEY, OTHER_TEAM)
            await lease.adjust(rpm=1)
        assert await _levels(relocatable) == {KEY: 4, TEAM: 4}

    async def test_other_clients_follow(self, relocatable: World) -> None:
        other = await relocatable.open()
        await other.set_parent(KEY, OTHER_TEAM)
        await relocatable.repo.invalidate_config_cache()
        await relocatable.take(KEY, rpm=2)
        assert await _levels(relocatable) == {KEY: 5, TEAM: 7, OTHER_TEAM: 8}

    async def test_the_change_is_logged_with_what_was_before(self, relocatable: World) -> None:
        await relocatable.repo.set_parent(KEY, OTHER_TEAM, principal="alice")
        await relocatable.repo.set_parent(KEY, None)
        last, first = (await relocatable.repo.get_audit_events(KEY))[:2]
        assert (first.action, first.principal) == ("parent_set", "alice")
        assert first.details == {
            "parent_id": OTHER_TEAM,
            "cascade": True,
            "previous": {"parent_id": TEAM, "cascade": True},
        }
        assert last.action == "parent_set"
        assert last.details["parent_id"] is None
        assert last.details["previous"] == {"parent_id": OTHER_TEAM, "cascade": True}

    async def test_the_same_parent_again_is_no_change(self, relocatable: World) -> None:
        events = await relocatable.repo.get_audit_events(KEY)
        assert await relocatable.repo.set_parent(KEY, TEAM) == await relocatable.repo.get_entity(
            KEY
        )
        assert await relocatable.repo.get_audit_events(KEY) == events

    async def test_changes_at_once_are_made_one_after_the_other(self, relocatable: World) -> None:
        teams = [f"team-{number}" for number in range(CONCURRENT_CHANGES)]
        await agather([partial(relocatable.repo.set_parent, KEY, team) for team in teams])
        events = await relocatable.repo.get_audit_events(KEY)
        changes = {
            event.details["previous"]["parent_id"]: event.details["parent_id"]
            for event in events
            if event.action == "parent_set"
        }
        assert sorted(changes.values()) == teams
        parent, path = TEAM, []
        while parent in changes:
            parent = changes[parent]
            path.append(parent)
        assert sorted(path) == teams
        entity = await relocatable.repo.get_entity(KEY)
        assert entity is not None
        assert entity.parent_id == parent

    async def test_an_entity_that_was_never_created_is_not_found(self, world: World) -> None:
        await world.configure(Limit.per_minute("rpm", 10))
        await world.take("stranger", rpm=1)
        with pytest.raises(EntityNotFoundError) as caught:
            await world.repo.set_parent("stranger", TEAM)
        assert caught.value.entity_id == "stranger"
        assert await world.repo.get_entity("stranger") is None
        assert await world.repo.get_audit_events("stranger") == []

    @for_each(
        ("arguments", "field"),
        [
            ({"parent_id": KEY}, "parent_id"),
            ({"parent_id": ""}, "parent_id"),
            ({"parent_id": "a#b"}, "parent_id"),
            ({"parent_id": OTHER_TEAM, "cascade": 1}, "cascade"),
            ({"parent_id": None, "cascade": "no"}, "cascade"),
            ({"parent_id": OTHER_TEAM, "principal": 5}, "principal"),
            ({"entity_id": "a#b", "parent_id": OTHER_TEAM}, "entity_id"),
        ],
    )
    async def test_bad_input_is_refused(
        self, relocatable: World, arguments: dict[str, object], field: str
    ) -> None:
        before = await relocatable.repo.get_entity(KEY)
        with pytest.raises(ValidationError) as caught:
            await relocatable.repo.set_parent(**{"entity_id": KEY, **arguments})  # type: ignore[arg-type]
        assert caught.value.field == field
        assert await relocatable.repo.get_entity(KEY) == before

    async def test_a_parent_that_is_not_registered_is_accepted_and_logged(
        self, relocatable: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "zae_limiter")
        await relocatable.repo.create_entity("key-2", parent_id=TEAM, cascade=True)
        await relocatable.repo.set_parent(KEY, OTHER_TEAM)
        await relocatable.repo.set_parent(KEY, None)
        assert caplog.messages == []
        await relocatable.repo.create_entity("key-3", parent_id="taem", cascade=True)
        await relocatable.repo.set_parent(KEY, "taem")
        for entity_id, message in zip(("key-3", KEY), caplog.messages, strict=True):
            assert f"entity {entity_id!r} has the parent 'taem', which is not registered" in message
        assert {record.levelname for record in caplog.records} == {"INFO"}
        await relocatable.take("key-3", rpm=1)
        assert await relocatable.tokens("rpm", "taem") == 9

    async def test_the_limiter_has_it_too(self, relocatable: World) -> None:
        changed = await relocatable.limiter.set_parent(KEY, OTHER_TEAM)
        assert await relocatable.limiter.get_children(OTHER_TEAM) == [changed]


async def _levels(world: World) -> dict[str, float]:
    """Return the tokens of every bucket in use."""
    states = await world.repo.get_resource_buckets(API)
    return {state.entity_id: state.tokens for state in states}
