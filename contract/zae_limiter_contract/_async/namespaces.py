"""Namespaces, which are isolated parts of one store, and their life."""

from __future__ import annotations

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import NamespaceNotFoundError, NamespaceStateError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World

RPM, FIVE = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 5)


class NamespaceContract(Contract):
    """Namespaces are isolated; they are registered, deleted and recovered."""

    @pytest.fixture
    async def red(self, world: World) -> Repository:
        await world.repo.register_namespace("red")
        return await world.repo.namespace("red")

    @pytest.fixture
    async def blue(self, world: World) -> Repository:
        await world.repo.register_namespace("blue")
        return await world.repo.namespace("blue")

    async def test_buckets_are_separate(self, red: Repository, blue: Repository) -> None:
        for repository in (red, blue):
            await _use(repository)
        state = await red.get_bucket(USER, API, "rpm")
        assert state is not None
        assert state.tokens == 7
        await red.reset_bucket(USER, API)
        other = await blue.get_bucket(USER, API, "rpm")
        assert other is not None
        assert other.tokens == 7
        assert len(await blue.get_resource_buckets(API)) == 1

    async def test_limits_are_separate(self, red: Repository, blue: Repository) -> None:
        await red.set_system_defaults([RPM], on_unavailable="allow")
        await red.set_resource_defaults(API, [RPM])
        await red.set_limits(USER, [RPM])
        assert await blue.get_system_defaults() == ([], None)
        assert await blue.get_resource_defaults(API) == []
        assert await blue.get_limits(USER) == []
        assert await blue.list_resources_with_defaults() == []
        assert await blue.list_entities_with_custom_limits("_default_") == ([], None)
        assert await blue.resolve_limits(USER, API) == (None, None, None)

    async def test_entities_are_separate(self, red: Repository, blue: Repository) -> None:
        await red.create_entity("key", parent_id="team", cascade=True)
        assert await blue.get_entity("key") is None
        assert await blue.get_children("team") == []
        await blue.create_entity("key")
        await blue.delete_entity("key")
        assert await red.get_entity("key") is not None

    async def test_history_is_separate(self, red: Repository, blue: Repository) -> None:
        await _use(red)
        await red.create_entity(USER, principal="me")
        assert await blue.get_audit_events(USER) == []
        assert await blue.get_audit_events("$SYSTEM") == []
        assert await blue.get_usage_snapshots(USER) == ([], None)
        assert len(await red.get_audit_events(USER)) == 1
        if red.capabilities.usage_history:
            assert (await red.get_usage_summary(USER)).total == {"rpm": 3}

    async def test_the_default_namespace_is_there_from_the_start(self, world: World) -> None:
        assert world.repo.namespace_name == "default"
        (only,) = await world.repo.list_namespaces()
        assert (only.name, only.namespace_id) == ("default", world.repo.namespace_id)

    async def test_registering_twice_gives_the_same_id(self, world: World) -> None:
        first = await world.repo.register_namespace("red")
        assert await world.repo.register_namespace("red") == first
        both = await world.repo.register_namespaces(["blue", "red"])
        assert both["red"] == first
        assert both["blue"] != first
        names = [each.name for each in await world.repo.list_namespaces()]
        assert names == ["blue", "default", "red"]

    async def test_a_scoped_repository_knows_its_namespace(self, world: World) -> None:
        namespace_id = await world.repo.register_namespace("red")
        red = await world.repo.namespace("red")
        assert (red.namespace_name, red.namespace_id) == ("red", namespace_id)
        assert (await world.repo.get_namespace("red")).namespace_id == namespace_id

    @for_each("ask", ["namespace", "get_namespace", "delete_namespace"])
    async def test_an_unknown_namespace_is_not_found(self, world: World, ask: str) -> None:
        with pytest.raises(NamespaceNotFoundError) as caught:
            await getattr(world.repo, ask)("nowhere")
        assert caught.value.namespace == "nowhere"

    async def test_a_deleted_namespace_frees_its_name_and_keeps_its_data(
        self, world: World, red: Repository
    ) -> None:
        await _use(red)
        deleted = await world.repo.delete_namespace("red")
        assert deleted == red.namespace_id
        with pytest.raises(NamespaceNotFoundError):
            await world.repo.namespace("red")
        assert [each.name for each in await world.repo.list_namespaces()] == ["default"]
        (orphan,) = await world.repo.list_orphan_namespaces()
        assert (orphan.namespace_id, orphan.name, orphan.status) == (deleted, "red", "deleted")
        assert orphan.deleted_at == "2026-01-01T00:00:00Z"

    async def test_a_recovered_namespace_has_its_data_again(
        self, world: World, red: Repository
    ) -> None:
        await _use(red)
        deleted = await world.repo.delete_namespace("red")
        assert await world.repo.recover_namespace(deleted) == "red"
        again = await world.repo.namespace("red")
        state = await again.get_bucket(USER, API, "rpm")
        assert state is not None
        assert state.tokens == 7
        assert await world.repo.list_orphan_namespaces() == []

    async def test_a_name_that_is_registered_again_gets_a_new_id_and_no_data(
        self, world: World, red: Repository
    ) -> None:
        await _use(red)
        deleted = await world.repo.delete_namespace("red")
        assert await world.repo.register_namespace("red") != deleted
        again = await world.repo.namespace("red")
        assert await again.get_buckets(USER) == []
        assert await again.get_system_defaults() == ([], None)

    async def test_a_namespace_cannot_be_recovered_while_its_name_is_in_use(
        self, world: World, red: Repository
    ) -> None:
        deleted = await world.repo.delete_namespace("red")
        await world.repo.register_namespace("red")
        with pytest.raises(NamespaceStateError):
            await world.repo.recover_namespace(deleted)
        await world.repo.delete_namespace("red")
        assert await world.repo.recover_namespace(deleted) == "red"

    async def test_an_active_namespace_cannot_be_recovered(
        self, world: World, red: Repository
    ) -> None:
        with pytest.raises(NamespaceStateError):
            await world.repo.recover_namespace(red.namespace_id)

    async def test_an_unknown_id_cannot_be_recovered(self, world: World) -> None:
        with pytest.raises(NamespaceNotFoundError):
            await world.repo.recover_namespace("unknown-id")

    async def test_opening_with_a_name_registers_it(self, world: World) -> None:
        red = await world.open("red")
        assert red.namespace_id == await world.repo.register_namespace("red")


async def _use(repository: Repository) -> None:
    """Store limits, and take three tokens from a bucket of ten."""
    await repository.set_system_defaults([RPM])
    async with RateLimiter(repository).acquire(USER, API, {"rpm": 3}):
        pass
