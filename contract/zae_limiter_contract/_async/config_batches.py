"""Batches of configuration changes, and documents that are replaced on a condition."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from zae_limiter._async.ports import Engine
from zae_limiter.admission.configuration import MAX_CHANGES, ConfigBatch, Guard, PlaceChange
from zae_limiter.models.config import KEEP, ConfigLevel, LevelChange, LevelConfig, OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World
from zae_limiter_contract.together import agather

TEN, TWENTY = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)
KEY, PAGE = "provisioner", "provisioner#1"


class ConfigBatchContract(Contract):
    """A batch is made as a whole or not at all; a document is replaced at its expected revision."""

    @pytest.fixture
    def engine(self, world: World) -> Engine:
        return world.repo._context.engine  # noqa: SLF001 - below the public API

    async def test_a_batch_is_one_change_of_the_version(self, world: World, engine: Engine) -> None:
        before = await _version(world, engine)
        changes = [
            LevelChange(ConfigLevel(), (TEN,), OnUnavailable.BLOCK),
            LevelChange(ConfigLevel(resource=API), (TEN,)),
            LevelChange(ConfigLevel(USER, API), (TWENTY,)),
            PlaceChange(USER, "team", cascade=True),
        ]
        assert await _write(world, engine, changes) == 4
        assert await _version(world, engine) == before + 1
        assert await _write(world, engine, changes) == 0
        assert await _version(world, engine) == before + 1
        assert len(await world.repo.get_audit_events(USER)) == 2
        changes[3] = PlaceChange(USER, unregister=True)
        assert await _write(world, engine, changes) == 1
        assert await _version(world, engine) == before + 1, "a parent is no configuration"
        (event,) = await world.repo.get_audit_events(USER, limit=1)
        assert event.action == "entity_unregistered"

    async def test_a_batch_that_only_reorders_limits_changes_nothing(
        self, world: World, engine: Engine
    ) -> None:
        tpd = Limit.per_day("tpd", 5)
        for level in (ConfigLevel(), ConfigLevel(resource=API), ConfigLevel(USER, API)):
            assert await _write(world, engine, [LevelChange(level, (TEN, tpd))]) == 1
            before = await _version(world, engine)
            assert await _write(world, engine, [LevelChange(level, (tpd, TEN))]) == 0
            assert await _version(world, engine) == before

    async def test_limits_and_policy_of_a_level_are_kept_apart(
        self, world: World, engine: Engine
    ) -> None:
        system = ConfigLevel()
        await _write(world, engine, [LevelChange(system, (TEN,), OnUnavailable.ALLOW)])
        await _write(world, engine, [LevelChange(system, KEEP, OnUnavailable.BLOCK)])
        assert await world.repo.get_system_defaults() == ([TEN], OnUnavailable.BLOCK)
        await _write(world, engine, [LevelChange(system, (), KEEP)])
        assert await world.repo.get_system_defaults() == ([], OnUnavailable.BLOCK)
        await _write(world, engine, [LevelChange(system, (), None)])
        assert await world.repo.get_system_defaults() == ([], None)

    async def test_limits_that_a_batch_deletes_beside_a_mode_are_logged_as_deleted(
        self, world: World, engine: Engine
    ) -> None:
        level = ConfigLevel(USER, API)
        await world.repo.set_limits(USER, [TEN], API)
        await world.repo.set_mode(API, USER, "shadow")
        await _write(world, engine, [LevelChange(level, ())])
        (in_batch,) = await world.repo.get_audit_events(USER, limit=1)
        await world.repo.set_limits(USER, [TEN], API)
        await world.repo.delete_limits(USER, API)
        (alone,) = await world.repo.get_audit_events(USER, limit=1)
        assert (in_batch.action, in_batch.details) == (alone.action, alone.details)
        assert in_batch.action == "limits_deleted"

    async def test_registries_count_what_a_batch_changes(
        self, world: World, engine: Engine
    ) -> None:
        levels = [ConfigLevel(f"entity-{n}", ("api", "chat")[n % 2]) for n in range(MAX_CHANGES)]
        await _write(world, engine, [LevelChange(level, (TEN,)) for level in levels])
        assert await world.repo.list_resources_with_entity_configs() == ["api", "chat"]
        moved = [LevelChange(levels[0], ()), LevelChange(ConfigLevel("entity-0", "new"), (TEN,))]
        moved += [LevelChange(level, ()) for level in levels if level.resource == "chat"]
        assert await _write(world, engine, list(moved)) == len(moved)
        assert await world.repo.list_resources_with_entity_configs() == ["api", "new"]
        await world.repo.delete_limits("entity-0", "new")
        for level in levels[2::2]:
            await world.repo.delete_limits(level.entity_id, level.resource)
        assert await world.repo.list_resources_with_entity_configs() == []

    async def test_many_levels_and_entities_are_read_at_once(
        self, world: World, engine: Engine
    ) -> None:
        await world.repo.set_limits(USER, [TEN], API)
        await world.repo.create_entity(USER)
        namespace_id = world.repo.namespace_id
        levels = [ConfigLevel(f"entity-{n}", API) for n in range(250)] + [ConfigLevel(USER, API)]
        configs = await engine.configs.get_many(namespace_id, levels)
        assert configs == {ConfigLevel(USER, API): LevelConfig((TEN,))}
        found = await engine.entities.get_many(namespace_id, [USER, "stranger"])
        assert list(found) == [USER]

    async def test_a_guard_refuses_the_whole_batch(self, world: World, engine: Engine) -> None:
        namespace_id = world.repo.namespace_id
        change = LevelChange(ConfigLevel(USER, API), (TEN,))
        assert await _write(world, engine, [change], Guard(KEY, "r1")) is None
        await engine.documents.replace(namespace_id, KEY, {"revision": "r1"}, revision=None)
        assert await _write(world, engine, [change], Guard(KEY, "r0")) is None
        assert await world.repo.get_limits(USER, API) == []
        assert await world.repo.get_audit_events(USER) == []
        assert await _write(world, engine, [change], Guard(KEY, "r1")) == 1

    async def test_a_document_is_replaced_at_its_revision_only(
        self, world: World, engine: Engine
    ) -> None:
        replace = partial(engine.documents.replace, world.repo.namespace_id, KEY)
        assert not await replace({"revision": "r2"}, revision="r1")
        assert await replace({"revision": "r1", "value": 1}, revision=None)
        assert not await replace({"revision": "r2"}, revision=None)
        assert await replace({"revision": "r2", "value": 2}, revision="r1")
        assert not await replace({"revision": "r3"}, revision="r2", guard=Guard(PAGE, "r1"))
        await engine.documents.put(world.repo.namespace_id, PAGE, {"revision": "r1"})
        assert not await replace({"revision": "r3"}, revision="r2", guard=Guard(PAGE, "r2"))
        assert await replace({"revision": "r3"}, revision="r2", guard=Guard(PAGE, "r1"))
        assert await world.repo.get_provisioner_state() == {"revision": "r3"}
        await world.repo.put_provisioner_state({"plain": True})
        assert await replace({"revision": "r4"}, revision=None)

    async def test_of_several_replacements_at_once_one_succeeds(
        self, world: World, engine: Engine
    ) -> None:
        calls = [
            partial(
                engine.documents.replace,
                world.repo.namespace_id,
                KEY,
                {"revision": f"r{number}"},
                revision=None,
            )
            for number in range(5)
        ]
        assert sorted(await agather(calls)) == [False] * 4 + [True]


async def _write(
    world: World, engine: Engine, changes: list[Any], guard: Guard | None = None
) -> int | None:
    batch = ConfigBatch.of(changes, world.clock(), "alice", guard)
    return await engine.configs.write(world.repo.namespace_id, batch)


async def _version(world: World, engine: Engine) -> int:
    snapshot = await engine.configs.snapshot(world.repo.namespace_id, USER, API, fresh=True)
    return snapshot.version
