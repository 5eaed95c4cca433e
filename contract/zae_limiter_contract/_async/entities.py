"""Entities and their parents."""

from __future__ import annotations

import pytest

from zae_limiter.exceptions import EntityExistsError, ValidationError
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, World

RPM = Limit.per_minute("rpm", 10)


class EntityContract(Contract):
    """Entities are created, read, listed and deleted."""

    async def test_an_entity_is_read_back_as_it_was_created(self, world: World) -> None:
        created = await world.repo.create_entity(
            "key-1", name="Key", parent_id="team", cascade=True, metadata={"tier": "gold", "ü": "ß"}
        )
        assert created.created_at == "2026-01-01T00:00:00Z"
        assert (created.is_child, created.is_parent) == (True, False)
        assert created.metadata == {"tier": "gold", "ü": "ß"}
        assert await world.repo.get_entity("key-1") == created

    async def test_an_entity_needs_nothing_but_an_id(self, world: World) -> None:
        created = await world.repo.create_entity("team")
        assert (created.name, created.parent_id, created.cascade) == (None, None, False)
        assert (created.is_child, created.is_parent, created.metadata) == (False, True, {})
        assert await world.repo.get_entity("team") == created

    async def test_an_unknown_entity_is_none(self, world: World) -> None:
        assert await world.repo.get_entity("nobody") is None

    @for_each(
        "entity_id",
        [
            "a",
            "x" * 256,
            "😀" * 225,
            "mail@example.org",
            "a/b:c?d=e",
            "ключ",
            "日本",
            "a b",
            "1",
            "o'b\";--%_*",
        ],
    )
    async def test_ids_may_be_any_printable_text(self, world: World, entity_id: str) -> None:
        await world.configure(RPM)
        await world.repo.create_entity(entity_id)
        await world.take(entity_id, rpm=1)
        assert (await world.repo.get_buckets(entity_id))[0].entity_id == entity_id

    async def test_ids_that_differ_in_case_are_different(self, world: World) -> None:
        await world.configure(RPM)
        await world.take("User", rpm=10)
        await world.take("user", rpm=10)

    async def test_creating_an_entity_twice_is_refused_and_changes_nothing(
        self, world: World
    ) -> None:
        created = await world.repo.create_entity("team", name="first")
        with pytest.raises(EntityExistsError) as caught:
            await world.repo.create_entity("team", name="second")
        assert caught.value.entity_id == "team"
        assert await world.repo.get_entity("team") == created

    async def test_what_was_given_or_read_is_not_the_store_s_own(self, world: World) -> None:
        metadata = {"tier": "gold"}
        created = await world.repo.create_entity("team", parent_id="company", metadata=metadata)
        metadata["tier"] = created.metadata["tier"] = "none"
        found = await world.repo.get_entity("team")
        assert found is not None
        found.metadata.clear()
        (child,) = await world.repo.get_children("company")
        child.metadata.clear()
        again = await world.repo.get_entity("team")
        assert again is not None
        assert again.metadata == {"tier": "gold"}

    async def test_children_are_listed_in_order_and_only_direct_ones(self, world: World) -> None:
        for child in ("c", "a", "b"):
            await world.repo.create_entity(child, parent_id="team")
        await world.repo.create_entity("grandchild", parent_id="a")
        await world.repo.create_entity("other", parent_id="company")
        found = await world.repo.get_children("team")
        assert [each.id for each in found] == ["a", "b", "c"]
        assert await world.repo.get_children("nobody") == []

    @pytest.mark.parametrize("parent_id", [None, "team"])
    async def test_entities_come_in_pages_without_gap_or_overlap(
        self, world: World, parent_id: str | None
    ) -> None:
        names = [f"key-{number:02d}" for number in range(25)]
        created = [await world.repo.create_entity(name, parent_id=parent_id) for name in names]
        await world.repo.create_entity("other", parent_id="company")
        await world.repo.set_limits("stranger", [RPM])
        await world.repo.register_namespace("red")
        other = await world.repo.namespace("red")
        await other.create_entity("elsewhere", parent_id=parent_id)
        for limit in (1, 7, 25, 26, 27, None):
            found: list[Entity] = []
            cursor, pages = None, 0
            while pages == 0 or cursor is not None:
                page, cursor = await world.repo.list_entities(limit, cursor, parent_id)
                assert limit is None or len(page) <= limit
                assert cursor is None or cursor == page[-1].id
                found += page
                pages += 1
            known = [each for each in found if each.id != "other"]
            assert sorted(known, key=lambda each: each.id) == created
            assert len(found) == len(created) + (parent_id is None)
            assert parent_id is None or found == created

    async def test_a_page_goes_on_although_the_last_one_seen_is_gone(self, world: World) -> None:
        for name in ("a", "b", "c", "d"):
            await world.repo.create_entity(name)
        page, cursor = await world.repo.list_entities(2)
        for each in page:
            await world.repo.delete_entity(each.id)
        rest, end = await world.repo.list_entities(10, cursor)
        assert {each.id for each in page + rest} == {"a", "b", "c", "d"}
        assert (len(rest), end) == (2, None)
        assert await world.repo.list_entities(1, rest[-1].id) == ([], None)

    async def test_what_has_buckets_is_listed_although_it_was_never_created(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        for name in ("b", "d", "f"):
            await world.repo.create_entity(name)
        for name in ("a", "b", "c", "d", "e"):
            for resource in (API, "other", "third"):
                await world.take(name, resource, rpm=1)
        for limit in (None, 1, 2, 4, 100):
            entities: list[Entity] = []
            cursor, first = None, True
            while first or cursor is not None:
                page, cursor = await world.repo.list_entities(limit, cursor)
                assert limit is None or len(page) <= limit
                entities += page
                first = False
            assert sorted(each.id for each in entities) == ["a", "b", "c", "d", "e", "f"]
            unregistered = {each.id for each in entities if not each.created_at}
            assert unregistered == {"a", "c", "e"}
        assert await world.repo.list_entities(parent_id="team") == ([], None)

    async def test_of_no_entities_there_is_an_empty_page(self, world: World) -> None:
        assert await world.repo.list_entities() == ([], None)
        assert await world.repo.list_entities(5, parent_id="team") == ([], None)

    @for_each("limit", [0, -1, 1.5, True])
    async def test_a_page_has_a_whole_number_of_entities(self, world: World, limit: int) -> None:
        with pytest.raises(ValidationError):
            await world.repo.list_entities(limit)

    async def test_deleting_removes_the_entity_its_limits_and_its_buckets(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        await world.repo.create_entity("key-1")
        await world.repo.set_limits("key-1", [Limit.per_minute("rpm", 5)])
        await world.repo.set_limits("key-1", [Limit.per_minute("rpm", 6)], API)
        await world.take("key-1", rpm=6)
        await world.take("key-1", "other", rpm=5)
        await world.repo.delete_entity("key-1")
        assert await world.repo.get_entity("key-1") is None
        assert await world.repo.get_limits("key-1") == []
        assert await world.repo.get_limits("key-1", API) == []
        assert await world.repo.get_buckets("key-1") == []
        await world.take("key-1", rpm=10)

    async def test_deleting_leaves_others_alone(self, world: World) -> None:
        await world.configure(RPM)
        for name in ("key-1", "key-10"):
            await world.repo.create_entity(name)
            await world.repo.set_limits(name, [Limit.per_minute("rpm", 5)])
            await world.take(name, rpm=2)
        await world.repo.delete_entity("key-1")
        assert await world.repo.get_entity("key-10") is not None
        assert await world.tokens("rpm", "key-10") == 3

    async def test_children_of_a_deleted_parent_stay_and_point_to_it(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.create_entity("team")
        await world.repo.create_entity("key-1", parent_id="team", cascade=True)
        await world.take("key-1", rpm=3)
        await world.repo.delete_entity("team")
        assert [each.id for each in await world.repo.get_children("team")] == ["key-1"]
        await world.take("key-1", rpm=1)
        assert await world.tokens("rpm", "team") == 9

    async def test_deleting_what_does_not_exist_does_nothing(self, world: World) -> None:
        await world.repo.delete_entity("nobody")
        assert await world.repo.get_audit_events("nobody") == []

    async def test_an_entity_can_be_created_anew(self, world: World) -> None:
        await world.repo.create_entity("key-1", parent_id="a", cascade=True)
        await world.repo.delete_entity("key-1")
        await world.repo.create_entity("key-1")
        found = await world.repo.get_entity("key-1")
        assert found is not None
        assert (found.parent_id, found.cascade) == (None, False)

    async def test_the_limiter_manages_entities_under_the_same_names(self, world: World) -> None:
        created = await world.limiter.create_entity("key-1", parent_id="team")
        assert await world.limiter.get_entity("key-1") == created
        assert await world.limiter.get_children("team") == [created]
        await world.limiter.delete_entity("key-1")
        assert await world.limiter.get_entity("key-1") is None
