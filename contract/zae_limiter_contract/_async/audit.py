"""The audit log, which has each change with its principal and its time."""

from __future__ import annotations

import pytest

from zae_limiter.exceptions import EntityExistsError, ValidationError
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World

RPM, TWENTY = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)


class AuditContract(Contract):
    """Every change has one event."""

    async def test_every_change_of_an_entity_is_logged_with_its_principal(
        self, world: World
    ) -> None:
        repo = world.repo
        await repo.create_entity(USER, principal="alice")
        await repo.set_limits(USER, [RPM], principal="bob")
        await repo.set_limits(USER, [RPM], API, principal="carol")
        await world.take(rpm=1)
        await repo.reset_bucket(USER, API, principal="dave")
        await world.take(rpm=1)
        await repo.top_up(USER, API, {"rpm": 1}, principal="erin")
        await repo.delete_limits(USER, API, principal="frank")
        await repo.delete_entity(USER, principal="grace")
        events = await repo.get_audit_events(USER)
        assert [(each.action, each.principal, each.resource) for each in reversed(events)] == [
            ("entity_created", "alice", None),
            ("limits_set", "bob", "_default_"),
            ("limits_set", "carol", API),
            ("bucket_reset", "dave", API),
            ("bucket_topped_up", "erin", API),
            ("limits_deleted", "frank", API),
            ("entity_deleted", "grace", None),
        ]
        assert {each.entity_id for each in events} == {USER}

    async def test_changes_of_defaults_are_logged_under_their_own_subjects(
        self, world: World
    ) -> None:
        repo = world.repo
        await repo.set_system_defaults([RPM], principal="alice")
        await repo.delete_system_defaults(principal="bob")
        await repo.set_resource_defaults(API, [RPM], principal="carol")
        await repo.delete_resource_defaults(API, principal="dave")
        system = await repo.get_audit_events("$SYSTEM")
        resource = await repo.get_audit_events(f"$RESOURCE:{API}")
        assert _actions(system) == [("limits_deleted", "bob"), ("limits_set", "alice")]
        assert _actions(resource) == [("limits_deleted", "dave"), ("limits_set", "carol")]

    async def test_the_life_of_a_namespace_is_logged_with_its_principals(
        self, world: World
    ) -> None:
        repo = world.repo
        namespace_id = await repo.register_namespace("red", principal="alice")
        assert await repo.register_namespaces(["red"], "bob") == {"red": namespace_id}
        await repo.delete_namespace("red", principal="carol")
        await repo.recover_namespace(namespace_id, principal="dave")
        await repo.delete_namespace("red", principal="erin")
        await repo.purge_namespace(namespace_id, principal="frank")
        events = await repo.get_audit_events("$NAMESPACE:red")
        assert _actions(events) == [
            ("namespace_purged", "frank"),
            ("namespace_deleted", "erin"),
            ("namespace_recovered", "dave"),
            ("namespace_deleted", "carol"),
            ("namespace_registered", "alice"),
        ]
        assert {each.details["namespace_id"] for each in events} == {namespace_id}

    async def test_an_event_says_what_was_set_and_what_was_there_before(self, world: World) -> None:
        await world.repo.set_limits(USER, [RPM])
        await world.repo.set_limits(USER, [TWENTY])
        await world.repo.delete_limits(USER)
        deleted, changed, first = await world.repo.get_audit_events(USER)
        assert first.details["limits"] == [RPM.to_dict()]
        assert first.details["previous"] is None
        assert changed.details["limits"] == [TWENTY.to_dict()]
        assert changed.details["previous"]["limits"] == [RPM.to_dict()]
        assert deleted.details["previous"]["limits"] == [TWENTY.to_dict()]

    async def test_an_event_has_the_time_of_the_change(self, world: World) -> None:
        await world.repo.create_entity(USER)
        world.clock.advance(hours=1, ms=5)
        await world.repo.set_limits(USER, [RPM])
        events = await world.repo.get_audit_events(USER)
        assert [each.timestamp for each in events] == [
            "2026-01-01T01:00:00.005Z",
            "2026-01-01T00:00:00Z",
        ]

    async def test_events_come_newest_first_also_within_a_millisecond(self, world: World) -> None:
        for number in range(1, 31):
            await world.repo.set_limits(USER, [Limit.per_minute("rpm", number)])
            if number % 10 == 0:
                world.clock.advance(ms=1)
        events = await world.repo.get_audit_events(USER)
        capacities = [each.details["limits"][0]["capacity"] for each in events]
        assert capacities == list(range(30, 0, -1))
        ids = [each.event_id for each in events]
        assert ids == sorted(set(ids), reverse=True)

    async def test_events_come_in_pages(self, world: World) -> None:
        for number in range(1, 8):
            await world.repo.set_limits(USER, [Limit.per_minute("rpm", number)])
        everything = await world.repo.get_audit_events(USER)
        found: list[AuditEvent] = []
        while page := await world.repo.get_audit_events(
            USER, limit=3, start_event_id=found[-1].event_id if found else None
        ):
            assert len(page) <= 3
            found += page
        assert found == everything
        assert len(found) == 7

    async def test_what_changes_nothing_is_not_logged(self, world: World) -> None:
        repo = world.repo
        await repo.create_entity(USER)
        with pytest.raises(EntityExistsError):
            await repo.create_entity(USER)
        with pytest.raises(ValidationError):
            await repo.set_limits(USER, [])
        await repo.delete_limits(USER)
        await repo.delete_entity("nobody")
        await repo.delete_system_defaults()
        (event,) = await repo.get_audit_events(USER)
        assert event.action == "entity_created"
        assert await repo.get_audit_events("nobody") == []
        assert await repo.get_audit_events("$SYSTEM") == []

    async def test_events_given_out_are_not_the_store_s_own(self, world: World) -> None:
        created = await world.repo.create_entity(USER, metadata={"tier": "gold"})
        created.metadata["tier"] = "changed"
        for _ in range(2):
            (event,) = await world.repo.get_audit_events(USER)
            assert event.details["metadata"] == {"tier": "gold"}
            event.details["metadata"]["tier"] = "changed"
            event.details.clear()

    async def test_using_limits_is_not_a_change(self, world: World) -> None:
        await world.repo.set_limits(USER, [RPM])
        await world.take(rpm=10)
        await world.refusal(rpm=1)
        await world.limiter.available(USER, API)
        assert len(await world.repo.get_audit_events(USER)) == 1

    async def test_events_of_similar_names_are_not_mixed_up(self, world: World) -> None:
        for entity_id in ("user", "user-1", "user-10"):
            await world.repo.create_entity(entity_id)
        for entity_id in ("user", "user-1", "user-10"):
            assert len(await world.repo.get_audit_events(entity_id)) == 1

    @for_each("limit", [0, -1, 1.5, None, True])
    async def test_a_page_has_a_whole_number_of_events(self, world: World, limit: int) -> None:
        with pytest.raises(ValidationError):
            await world.repo.get_audit_events(USER, limit=limit)

    async def test_the_events_of_all_subjects_come_newest_first_in_pages(
        self, world: World
    ) -> None:
        other = await world.open("other")
        for number in range(1, 4):
            await world.repo.set_limits(f"user-{number}", [RPM], principal=f"alice-{number}")
            await other.set_limits("stranger", [RPM])
            world.clock.advance(ms=1)
            await world.repo.set_system_defaults([Limit.per_minute("rpm", number)])
            await world.repo.set_resource_defaults(API, [Limit.per_minute("rpm", number)])
        await world.take(rpm=1)
        await world.repo.reset_bucket(USER, API)
        events = await world.repo.get_audit_events()
        assert [each.entity_id for each in events] == [
            USER,
            *("$RESOURCE:api", "$SYSTEM", "user-3"),
            *("$RESOURCE:api", "$SYSTEM", "user-2"),
            *("$RESOURCE:api", "$SYSTEM", "user-1"),
            "$NAMESPACE:default",
        ]
        pages: list[AuditEvent] = []
        while page := await world.repo.get_audit_events(
            limit=4, start_event_id=pages[-1].event_id if pages else None
        ):
            pages += page
        assert pages == events

    @for_each("entity_id", ["", 5])
    async def test_events_are_asked_for_by_subject(self, world: World, entity_id: str) -> None:
        with pytest.raises(ValidationError) as caught:
            await world.repo.get_audit_events(entity_id)
        assert caught.value.field == "entity_id"


def _actions(events: list[AuditEvent]) -> list[tuple[str, str | None]]:
    return [(each.action, each.principal) for each in events]
