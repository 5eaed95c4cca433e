"""Start-up code, which sets missing limits and entities and leaves existing ones alone."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest

from zae_limiter.admission.configuration import ConfigBatch
from zae_limiter.exceptions import LimitsChangedError, ValidationError
from zae_limiter.models.config import ConfigLevel, LevelChange, OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.naming import process_author
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World
from zae_limiter_contract.together import agather

TEN, TWENTY = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)
LEVELS = ["entity", "entity default", "resource", "system"]


class MissingContract(Contract):
    """A restart overwrites nothing, and a no-op is not logged."""

    @for_each("level", LEVELS)
    async def test_limits_are_set_only_where_there_are_none(self, world: World, level: str) -> None:
        set_limits, logged = _setter(world, level), await _count_events(world)
        assert await set_limits([TEN], if_missing=True) is True
        assert await _stored(world, level) == [TEN]
        version = await _version(world)
        assert await set_limits([TWENTY], if_missing=True) is False
        assert await _stored(world, level) == [TEN]
        assert await _version(world) == version
        assert await _count_events(world) == logged + 1
        assert await set_limits([TWENTY]) is True
        assert await _stored(world, level) == [TWENTY]

    @for_each("level", LEVELS)
    async def test_limits_that_are_stored_already_are_no_change(
        self, world: World, level: str
    ) -> None:
        set_limits, logged = _setter(world, level), await _count_events(world)
        assert await set_limits([TEN, Limit.per_day("tpd", 5)]) is True
        version = await _version(world)
        assert await set_limits([TEN, Limit.per_day("tpd", 5)]) is False
        assert await _version(world) == version
        assert await _count_events(world) == logged + 1
        assert await set_limits([TEN]) is True
        assert await _version(world) == version + 1

    @for_each("level", LEVELS)
    async def test_the_same_limits_in_another_order_are_no_change(
        self, world: World, level: str
    ) -> None:
        set_limits, tpd = _setter(world, level), Limit.per_day("tpd", 5)
        await set_limits([TEN, tpd])
        version, logged = await _version(world), await _count_events(world)
        assert await set_limits([tpd, TEN]) is False
        assert await _stored(world, level) == [TEN, tpd]
        assert await _version(world) == version
        assert await _count_events(world) == logged
        assert await set_limits([tpd, TWENTY]) is True
        assert await _stored(world, level) == [tpd, TWENTY]

    @for_each("level", LEVELS)
    async def test_one_of_several_callers_sets_what_is_missing(
        self, world: World, level: str
    ) -> None:
        others = [world.repo]
        if world.spec.shared:
            others += [await world.open(), await world.open()]
        version, logged = await _version(world), await _count_events(world)
        calls = [
            partial(
                _setter(world, level, others[number % len(others)]),
                [Limit.per_minute("rpm", number + 1)],
                if_missing=True,
            )
            for number in range(6)
        ]
        won = await agather(calls)
        assert sorted(won) == [False] * 5 + [True]
        assert await _stored(world, level) == [Limit.per_minute("rpm", won.index(True) + 1)]
        assert await _count_events(world) == logged + 1
        assert await _version(world) == version + 1

    async def test_missing_limits_are_set_again_after_they_were_deleted(self, world: World) -> None:
        await world.repo.set_limits(USER, [TEN], if_missing=True)
        await world.repo.delete_limits(USER)
        assert await world.repo.set_limits(USER, [TWENTY], if_missing=True) is True
        assert await world.repo.get_limits(USER) == [TWENTY]

    async def test_a_policy_for_outages_stays_with_the_limits_that_stay(self, world: World) -> None:
        repo = world.repo
        await repo.set_system_defaults([TEN], "allow", if_missing=True)
        assert await repo.set_system_defaults([TWENTY], "block", if_missing=True) is False
        assert await repo.get_system_defaults() == ([TEN], OnUnavailable.ALLOW)
        assert await repo.set_system_defaults([TEN], "allow") is False
        assert await repo.set_system_defaults([TEN]) is False
        assert await repo.set_system_defaults([TEN], "block") is True
        assert await repo.set_system_defaults([TEN], None) is True
        assert await repo.get_system_defaults() == ([TEN], None)

    async def test_a_policy_that_is_stored_alone_is_kept(self, world: World) -> None:
        alone = LevelChange(ConfigLevel(), (), OnUnavailable.ALLOW)
        batch = ConfigBatch.of([alone], world.clock(), "alice")
        configs = world.repo._context.engine.configs  # noqa: SLF001 - below the public API
        await configs.write(world.repo.namespace_id, batch)
        assert await world.repo.set_system_defaults([TEN], "block", if_missing=True) is True
        assert await world.repo.get_system_defaults() == ([TEN], OnUnavailable.ALLOW)

    async def test_an_entity_is_created_only_if_it_does_not_exist(self, world: World) -> None:
        first = await world.repo.ensure_entity(
            "key", "Key", "team", True, {"tier": "gold"}, principal="alice"
        )
        assert first == await world.repo.get_entity("key")
        assert (first.parent_id, first.cascade, first.metadata) == ("team", True, {"tier": "gold"})
        world.clock.advance(ms=5)
        assert await world.limiter.ensure_entity("key", "Another", "other") == first
        assert await world.repo.get_entity("key") == first
        (event,) = await world.repo.get_audit_events("key")
        assert (event.action, event.principal) == ("entity_created", "alice")

    async def test_a_parent_that_is_not_set_is_logged(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "zae_limiter")
        await world.repo.create_entity("key")
        assert (await world.repo.ensure_entity("key")).parent_id is None
        assert caplog.records == []
        assert (await world.repo.ensure_entity("key", parent_id="team")).parent_id is None
        [logged] = caplog.records
        assert "'key' exists without a parent and stays as it is" in logged.getMessage()
        assert "set_parent('key', 'team')" in logged.getMessage()
        await world.repo.set_parent("key", "other")
        await world.repo.ensure_entity("key", parent_id="team")  # an operator has moved it
        assert [each for each in caplog.records if each.levelno == logging.WARNING] == [logged]

    async def test_several_callers_ensure_one_entity(self, world: World) -> None:
        others = [world.repo]
        if world.spec.shared:
            others += [await world.open(), await world.open()]
        calls = [
            partial(others[number % len(others)].ensure_entity, "key", f"name {number}")
            for number in range(6)
        ]
        found = await agather(calls)
        assert len({each.name for each in found}) == 1
        assert len(await world.repo.get_audit_events("key")) == 1

    @for_each("wrong", [{"cascade": True}, {"parent_id": "key"}, {"metadata": 5}, {"principal": 5}])
    async def test_wrong_values_are_refused_also_for_an_entity_that_exists(
        self, world: World, wrong: dict[str, Any]
    ) -> None:
        await world.repo.ensure_entity("key")
        with pytest.raises(ValidationError):
            await world.repo.ensure_entity("key", **wrong)

    @for_each("level", LEVELS)
    async def test_a_change_of_other_limits_than_the_stored_ones_is_refused(
        self, world: World, level: str
    ) -> None:
        set_limits = _setter(world, level)
        assert await set_limits([TEN], replaces=[]) is True
        with pytest.raises(LimitsChangedError, match="rpm:10/min") as caught:
            await set_limits([TWENTY], replaces=[])
        assert caught.value.stored == (str(TEN),)
        with pytest.raises(LimitsChangedError):
            await set_limits([TWENTY], replaces=[TWENTY])
        assert await _stored(world, level) == [TEN]
        assert await set_limits([TWENTY], replaces=[TEN]) is True
        assert await _stored(world, level) == [TWENTY]

    @for_each("level", LEVELS)
    async def test_of_two_changes_of_the_same_limits_one_is_refused(
        self, world: World, level: str
    ) -> None:
        set_limits = _setter(world, level)
        await set_limits([TEN])

        async def change(rate: int) -> bool:
            try:
                await set_limits([Limit.per_minute("rpm", rate)], replaces=[TEN])
            except LimitsChangedError:
                return False
            return True

        results = await agather([partial(change, rate) for rate in range(20, 26)])
        assert sorted(results) == [False] * 5 + [True]

    @for_each("level", LEVELS)
    async def test_other_limits_than_those_that_were_seen_are_not_deleted(
        self, world: World, level: str
    ) -> None:
        await _setter(world, level)([TEN])
        delete = _deleter(world, level)
        for seen in ([], [TWENTY], [TEN, Limit.per_day("tpd", 5)]):
            with pytest.raises(LimitsChangedError, match="rpm:10/min") as caught:
                await delete(replaces=seen)
            assert caught.value.stored == (str(TEN),)
        assert await _stored(world, level) == [TEN]
        await delete(replaces=[TEN])
        assert await _stored(world, level) == []
        with pytest.raises(LimitsChangedError):  # somebody else was faster
            await delete(replaces=[TEN])
        await delete(replaces=[])

    @for_each("level", LEVELS)
    async def test_of_an_edit_and_a_deletion_at_once_one_is_refused(
        self, world: World, level: str
    ) -> None:
        set_limits, delete = _setter(world, level), _deleter(world, level)
        await set_limits([TEN])

        async def change(is_deletion: bool) -> bool:
            try:
                if is_deletion:
                    await delete(replaces=[TEN])
                else:
                    await set_limits([TWENTY], replaces=[TEN])
            except LimitsChangedError:
                return False
            return True

        deleted, edited = await agather([partial(change, True), partial(change, False)])
        assert (deleted, edited) in {(True, False), (False, True)}
        assert await _stored(world, level) == ([] if deleted else [TWENTY])

    async def test_if_missing_is_true_or_false(self, world: World) -> None:
        with pytest.raises(ValidationError, match="if_missing"):
            await world.repo.set_limits(USER, [TEN], if_missing="yes")  # type: ignore[arg-type]

    async def test_a_change_without_a_principal_names_user_and_host(self, world: World) -> None:
        await world.repo.create_entity(USER, principal=" ")
        await world.repo.set_limits(USER, [TEN], principal="")
        await world.repo.set_system_defaults([TEN])
        await world.take(rpm=1)
        await world.repo.reset_bucket(USER, API)
        await world.repo.delete_entity(USER)
        events = await world.repo.get_audit_events()
        assert len(events) == 6, "with the namespace"
        assert {each.principal for each in events} == {process_author()}


async def _count_events(world: World) -> int:
    return len(await world.repo.get_audit_events())


def _setter(world: World, level: str, repository: Any = None) -> Any:
    """Return the method that sets limits of a level, of this or another repository."""
    repo = repository or world.repo

    async def set_limits(limits: list[Limit], **how: Any) -> bool:
        if level == "system":
            return await repo.set_system_defaults(limits, **how)
        if level == "resource":
            return await repo.set_resource_defaults(API, limits, **how)
        resource = API if level == "entity" else "_default_"
        return await repo.set_limits(USER, limits, resource, **how)

    return set_limits


def _deleter(world: World, level: str) -> Any:
    """Return the method that deletes the limits of a level."""
    repo = world.repo
    if level == "system":
        return repo.delete_system_defaults
    if level == "resource":
        return partial(repo.delete_resource_defaults, API)
    return partial(repo.delete_limits, USER, API if level == "entity" else "_default_")


async def _stored(world: World, level: str) -> list[Limit]:
    if level == "system":
        return (await world.repo.get_system_defaults())[0]
    if level == "resource":
        return await world.repo.get_resource_defaults(API)
    return await world.repo.get_limits(USER, API if level == "entity" else "_default_")


async def _version(world: World) -> int:
    configs = world.repo._context.engine.configs  # noqa: SLF001 - below the public API
    return (await configs.snapshot(world.repo.namespace_id, USER, API, fresh=True)).version
