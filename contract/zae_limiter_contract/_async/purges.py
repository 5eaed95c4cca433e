"""A purge deletes all data of one namespace, and nothing of another."""

from __future__ import annotations

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import NamespaceNotFoundError, NamespaceStateError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, World

RPM = Limit.per_minute("rpm", 10)
KEYS = [f"key-{number}" for number in range(5)]


class PurgeContract(Contract):
    """A purge cannot be undone."""

    @pytest.fixture
    async def filled(self, world: World) -> Repository:
        """A filled namespace with the name red."""
        return await _filled(world, "red")

    async def test_a_purge_removes_everything_of_the_namespace(
        self, world: World, filled: Repository
    ) -> None:
        await world.repo.delete_namespace("red")
        assert await world.repo.purge_namespace(filled.namespace_id) > 0
        assert await world.repo.list_orphan_namespaces() == []
        await _assert_empty(filled)

    async def test_a_purge_removes_nothing_of_other_namespaces(
        self, world: World, filled: Repository
    ) -> None:
        blue = await _filled(world, "blue")
        before = await _contents(blue)
        await world.repo.delete_namespace("red")
        await world.repo.purge_namespace(filled.namespace_id)
        assert await _contents(blue) == before
        assert [each.name for each in await world.repo.list_namespaces()] == ["blue", "default"]

    async def test_a_purge_leaves_the_namespace_that_took_the_name_over(
        self, world: World, filled: Repository
    ) -> None:
        deleted = await world.repo.delete_namespace("red")
        heir = await _filled(world, "red")
        before = await _contents(heir)
        await world.repo.purge_namespace(deleted)
        assert await _contents(heir) == before

    async def test_progress_is_told_and_adds_up_to_what_is_returned(
        self, world: World, filled: Repository
    ) -> None:
        told: list[int] = []
        await world.repo.delete_namespace("red")
        removed = await world.repo.purge_namespace(filled.namespace_id, told.append)
        assert told == sorted(told)
        assert told[-1] == removed

    async def test_an_interrupted_purge_can_be_taken_up_again(
        self, world: World, filled: Repository
    ) -> None:
        deleted = await _interrupted_purge(world)
        (orphan,) = await world.repo.list_orphan_namespaces()
        assert (orphan.namespace_id, orphan.status) == (deleted, "purging")
        with pytest.raises(NamespaceStateError):
            await world.repo.recover_namespace(deleted)
        await world.repo.purge_namespace(deleted)
        assert await world.repo.list_orphan_namespaces() == []
        await _assert_empty(filled)

    async def test_a_namespace_that_is_being_purged_admits_no_call(
        self, world: World, filled: Repository
    ) -> None:
        deleted = await _interrupted_purge(world)
        await filled.invalidate_config_cache()
        with pytest.raises(NamespaceStateError, match="is being purged"):
            async with RateLimiter(filled).acquire("late", API, {"rpm": 1}, [RPM]):
                pass
        await world.repo.purge_namespace(deleted)
        await _assert_empty(filled)

    async def test_a_namespace_that_is_being_purged_takes_no_changes(
        self, world: World, filled: Repository
    ) -> None:
        deleted = await _interrupted_purge(world)
        for change in (
            lambda: filled.set_system_defaults([RPM]),
            lambda: filled.set_resource_defaults("late", [RPM]),
            lambda: filled.set_limits("late", [RPM]),
            lambda: filled.create_entity("late"),
            lambda: filled.put_provisioner_state({"managed": ["late"]}),
        ):
            with pytest.raises(NamespaceStateError, match="is being purged"):
                await change()
        await world.repo.purge_namespace(deleted)
        await _assert_empty(filled)
        assert await filled.get_entity("late") is None

    async def test_an_active_namespace_cannot_be_purged(
        self, world: World, filled: Repository
    ) -> None:
        with pytest.raises(NamespaceStateError):
            await world.repo.purge_namespace(filled.namespace_id)
        assert len(await filled.get_resource_buckets(API)) == len(KEYS)

    async def test_a_recovered_namespace_cannot_be_purged(
        self, world: World, filled: Repository
    ) -> None:
        deleted = await world.repo.delete_namespace("red")
        await world.repo.recover_namespace(deleted)
        with pytest.raises(NamespaceStateError):
            await world.repo.purge_namespace(deleted)

    async def test_what_was_purged_cannot_be_recovered_or_purged_again(
        self, world: World, filled: Repository
    ) -> None:
        deleted = await world.repo.delete_namespace("red")
        await world.repo.purge_namespace(deleted)
        with pytest.raises(NamespaceNotFoundError):
            await world.repo.recover_namespace(deleted)
        with pytest.raises(NamespaceNotFoundError):
            await world.repo.purge_namespace(deleted)

    @for_each("unknown", ["unknown-id", "_"])
    async def test_an_unknown_id_cannot_be_purged(self, world: World, unknown: str) -> None:
        with pytest.raises(NamespaceNotFoundError):
            await world.repo.purge_namespace(unknown)

    async def test_what_an_open_client_writes_after_a_purge_can_be_purged(
        self, world: World, filled: Repository
    ) -> None:
        deleted = await world.repo.delete_namespace("red")
        assert await world.repo.purge_namespace(deleted) > 0
        await filled.set_system_defaults([RPM])
        async with RateLimiter(filled).acquire(KEYS[0], API, {"rpm": 1}):
            pass
        await filled.put_provisioner_state({"managed": True})
        assert await world.repo.purge_namespace(deleted) > 0
        await _assert_empty(filled)
        with pytest.raises(NamespaceNotFoundError):
            await world.repo.purge_namespace(deleted)

    async def test_the_life_of_a_namespace_is_logged_and_outlives_it(
        self, world: World, filled: Repository
    ) -> None:
        deleted = await world.repo.delete_namespace("red")
        await world.repo.recover_namespace(deleted)
        await world.repo.delete_namespace("red")
        await world.repo.purge_namespace(deleted)
        events = await world.repo.get_audit_events("$NAMESPACE:red")
        assert [each.action for each in events] == [
            "namespace_purged",
            "namespace_deleted",
            "namespace_recovered",
            "namespace_deleted",
            "namespace_registered",
        ]
        assert {each.details["namespace_id"] for each in events} == {deleted}

    async def test_many_rows_are_purged_in_batches(self, world: World) -> None:
        await world.repo.register_namespace("big")
        big = await world.repo.namespace("big")
        for number in range(600):
            await big.set_limits(f"user-{number}", [RPM])
        told: list[int] = []
        await world.repo.delete_namespace("big")
        assert await world.repo.purge_namespace(big.namespace_id, told.append) >= 600
        assert len(told) > 1
        assert await big.list_entities_with_custom_limits("_default_") == ([], None)


async def _filled(world: World, name: str) -> Repository:
    """Return a namespace with data of every kind, over two hours."""
    await world.repo.register_namespace(name)
    repository = await world.repo.namespace(name)
    await repository.set_system_defaults([RPM])
    await repository.set_resource_defaults(API, [RPM])
    await repository.put_provisioner_state({"managed": KEYS})
    limiter = RateLimiter(repository)
    for hour in range(2):
        for key in KEYS:
            if hour == 0:
                await repository.create_entity(key, parent_id="team")
                await repository.set_limits(key, [RPM])
            async with limiter.acquire(key, API, {"rpm": 2}):
                pass
        world.clock.advance(hours=1)
    return repository


async def _contents(repository: Repository) -> list[object]:
    """Return all data of a namespace that can be read."""
    await repository.invalidate_config_cache()
    return [
        await repository.get_children("team"),
        await repository.list_entities_with_custom_limits("_default_"),
        await repository.list_resources_with_defaults(),
        await repository.get_system_defaults(),
        [state.total_consumed_milli for state in await repository.get_resource_buckets(API)],
        [await repository.get_audit_events(key) for key in KEYS],
        await repository.get_audit_events("$SYSTEM"),
        await repository.get_usage_snapshots(resource=API),
        await repository.get_provisioner_state(),
    ]


async def _interrupted_purge(world: World) -> str:
    """Delete the namespace and stop its purge after the first page; return its id."""

    def stop(removed: int) -> None:
        raise InterruptedError

    deleted = await world.repo.delete_namespace("red")
    with pytest.raises(InterruptedError):
        await world.repo.purge_namespace(deleted, stop)
    return deleted


async def _assert_empty(repository: Repository) -> None:
    empty: list[object] = [
        [],
        ([], None),
        [],
        ([], None),
        [],
        [[]] * len(KEYS),
        [],
        ([], None),
        None,
    ]
    assert await _contents(repository) == empty
