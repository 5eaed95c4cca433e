"""The opening and closing of an engine, and its declared capabilities."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import InfrastructureError, InfrastructureNotFoundError, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World
from zae_limiter_contract.bad_input import LONE_SURROGATE

RPM = Limit.per_minute("rpm", 10)


class LifecycleContract(Contract):
    """The life of an engine from ``open`` to ``close``."""

    async def test_an_engine_declares_what_it_can_do(self, world: World) -> None:
        assert world.repo.capabilities == world.spec.capabilities

    async def test_an_open_store_answers(self, world: World) -> None:
        assert await world.repo.ping() is True
        assert await world.limiter.is_available() is True

    async def test_what_calls_asked_for_is_counted(self, world: World) -> None:
        await world.configure(RPM)
        assert world.repo.get_stats().charges == 0
        for _ in range(3):
            await world.take(rpm=3)
        assert not await world.granted(rpm=5)
        async with world.limiter.acquire(USER, API, {"rpm": 1}) as lease:
            await lease.adjust(rpm=2)
        stats = world.repo.get_stats()
        assert (stats.charges, stats.granted, stats.rejected) == (5, 4, 1)
        assert stats.settlements == 1
        assert stats.calls >= stats.writes > 0

    async def test_closing_after_rejections_by_buckets_that_do_not_exist_raises_nothing(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        for entity_id in ("first", "second"):
            assert not await world.granted(entity_id, rpm=11)
        await world.repo.close()

    async def test_closing_twice_is_fine(self, world: World) -> None:
        await world.repo.close()
        await world.repo.close()

    async def test_a_closed_repository_says_so(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=1)
        await world.repo.close()
        with pytest.raises(InfrastructureError, match="closed"):
            await world.take(rpm=1)
        with pytest.raises(InfrastructureError, match="closed"):
            await world.repo.get_buckets(USER)
        with pytest.raises(InfrastructureError, match="closed"):
            await world.repo.ping()
        with pytest.raises(InfrastructureError, match="closed"):
            await world.repo.list_namespaces()
        assert await world.limiter.is_available() is False

    async def test_a_closed_repository_is_no_outage_that_lets_calls_through(
        self, world: World
    ) -> None:
        await world.repo.set_system_defaults([RPM], on_unavailable="allow")
        await world.take(rpm=1)
        await world.repo.close()
        with pytest.raises(InfrastructureError, match="closed"):
            await world.take(rpm=1)
        with pytest.raises(InfrastructureError, match="closed"):
            async with world.limiter.acquire(USER, API, {"rpm": 1}, on_unavailable="allow"):
                pass

    async def test_a_lease_that_ends_after_the_close_raises_nothing(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=1) as lease:
            await lease.adjust(rpm=1)
            await world.repo.close()
        assert world.repo.lost_settlements == 1
        assert "could not settle" in caplog.text

    async def test_a_repository_is_a_context_manager(self, world: World) -> None:
        async with await world.open() as repository:
            assert await repository.ping()
        with pytest.raises(InfrastructureError):
            await repository.ping()

    async def test_a_limiter_does_not_close_a_repository_that_it_was_given(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        async with RateLimiter(world.repo):
            pass
        await world.take(rpm=1)

    async def test_closing_the_repository_of_a_limiter_with_its_own_clock_leaves_the_store_open(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        async with RateLimiter(world.repo, clock=FakeClock(world.clock())) as limiter:
            assert limiter.repository is not None
            await limiter.repository.close()
        await world.take(rpm=1)

    async def test_scoped_repositories_close_with_the_one_that_opened_the_store(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        scoped = await world.repo.namespace("default")
        async with scoped:
            pass
        assert await world.repo.ping()
        async with RateLimiter(scoped).acquire(USER, API, {"rpm": 1}):
            pass
        await world.repo.close()
        with pytest.raises(InfrastructureError):
            await scoped.ping()
        with pytest.raises(InfrastructureError, match="closed"):
            await RateLimiter(scoped).available(USER, API)

    async def test_closing_one_repository_leaves_others_of_the_store_open(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        other = await world.open()
        await other.close()
        await world.take(rpm=1)
        with pytest.raises(InfrastructureError, match="closed"):
            await other.ping()

    async def test_what_is_stored_is_there_when_the_store_is_opened_again(
        self, world: World
    ) -> None:
        if not world.spec.shared:
            pytest.skip("every open of this engine leads to a store of its own")
        await world.configure(RPM)
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.take("key", rpm=4)
        await world.repo.close()
        again = await world.open()
        assert again.namespace_id == world.repo.namespace_id
        assert await again.get_system_defaults() == ([RPM], None)
        assert [each.id for each in await again.get_children("team")] == ["key"]
        for entity_id in ("key", "team"):
            state = await again.get_bucket(entity_id, API, "rpm")
            assert state is not None
            assert state.tokens == 6
            assert state.total_consumed_milli == 4000

    async def test_a_refusal_survives_pickling(self, world: World) -> None:
        await world.configure(RPM)
        refusal = await world.refusal(rpm=11)
        copy = pickle.loads(pickle.dumps(refusal))  # our own data
        assert copy.statuses == refusal.statuses
        assert copy.as_dict() == refusal.as_dict()
        assert str(copy) == str(refusal)

    async def test_small_documents_are_read_back_as_they_were_written(self, world: World) -> None:
        assert await world.repo.get_provisioner_state() is None
        state = {"managed": ["a", {"b": [1, None, True]}], "hash": "ü"}
        await world.repo.put_provisioner_state(state)
        assert await world.repo.get_provisioner_state() == state
        await world.repo.put_provisioner_state({})
        assert await world.repo.get_provisioner_state() == {}
        await world.repo.set_version_record({"schema": 3})
        assert await world.repo.get_version_record() == {"schema": 3}

    async def test_a_document_may_hold_text_that_utf_8_cannot(self, world: World) -> None:
        document = {LONE_SURROGATE: LONE_SURROGATE}
        await world.repo.put_provisioner_state(document)
        assert await world.repo.get_provisioner_state() == document

    async def test_documents_given_or_read_are_not_the_store_s_own(self, world: World) -> None:
        document: dict[str, Any] = {"managed": {"api": ["rpm"]}}
        await world.repo.put_provisioner_state(document)
        document["managed"]["api"].append("changed")
        read = await world.repo.get_provisioner_state()
        assert read is not None
        read["managed"]["api"].append("changed")
        assert await world.repo.get_provisioner_state() == {"managed": {"api": ["rpm"]}}

    @for_each(
        "document",
        [None, [], "a", [1], {"a": float("nan")}, {"a": object()}, {"a": {1}}, {"a": b""}],
    )
    async def test_a_document_is_a_mapping_that_json_can_hold(
        self, world: World, document: Any
    ) -> None:
        for put in (world.repo.put_provisioner_state, world.repo.set_version_record):
            with pytest.raises(ValidationError):
                await put(document)
        assert await world.repo.get_provisioner_state() is None

    async def test_deleting_the_table_removes_everything(self, world: World) -> None:
        await world.configure(RPM)
        await world.take(rpm=4)
        await world.repo.register_namespace("red")
        red = await world.repo.namespace("red")
        await red.set_system_defaults([RPM])
        await world.repo.create_entity("key")
        await world.repo.set_version_record({"version": 1})
        await world.repo.delete_table()
        if world.repo.capabilities.infrastructure:  # the table itself is gone
            with pytest.raises(InfrastructureNotFoundError):
                await world.take(rpm=1)
            return
        assert await world.repo.get_buckets(USER) == []
        assert await world.repo.get_system_defaults() == ([], None)
        assert await red.get_system_defaults() == ([], None)
        assert await world.repo.get_version_record() is None
        assert await world.repo.list_namespaces() == []
        assert await world.repo.get_audit_events("$NAMESPACE:default") == []
        assert await world.repo.get_audit_events("key") == []
        assert await world.repo.resolve_limits(USER, API) == (None, None, None)
