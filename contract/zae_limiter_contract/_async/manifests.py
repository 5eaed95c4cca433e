"""Declarative limits: plan, apply, diff and export, with changes by hand in between."""

from __future__ import annotations

from typing import Any

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import Switch, SwitchMode
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, Failure, World, failing
from zae_limiter_ops._async.provisioner.state_store import StateStore
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.drift import DriftCause
from zae_limiter_ops.manifest.problems import ApplyConflict
from zae_limiter_ops.manifest.targets import TargetKind

RPM = Limit.per_minute("rpm", 10)
OTHER = Limit.per_minute("rpm", 77)
QUOTAS = [
    Limit.quota("month", 5, per="month", every=2, on=31, at="06:30", zone="Europe/Berlin"),
    Limit.quota("session", 5, after_first_use="5h", soft=True, thresholds=(80,)),
    Limit.budget("eur", "0.000000001", currency="EUR", per="week", on="sun", hold_ttl=None),
    Limit.per_minute("soft", 5, soft=True),
    Limit.concurrent("parallel", 5, lease_ttl=30, soft=True),
]
LEASE_MS = 60_000
MANY = 120  # entities: several batches, and more than the first page of the state holds


def declare(**sections: Any) -> LimitsManifest:
    """Return a manifest; one without any setting cannot be read, only made."""
    return LimitsManifest.from_dict(sections) if sections else LimitsManifest()


def rates(**limits: object) -> dict[str, Any]:
    return {"limits": limits}


FULL = declare(
    system={"on_unavailable": "allow", "limits": {"rpm": {"capacity": 100}, "tpm": "9/hour:12"}},
    resources={API: rates(rpm={"capacity": 50, "burst": 60, "refill_period": 30})},
    entities={
        USER: {"parent": "team", "cascade": True, "resources": {API: rates(rpm=5)}},
        "team": rates(rpm=8),
    },
)


class ManifestContract(Contract):
    """An apply stores the settings of the manifest; settings that it never named stay."""

    async def test_an_apply_stores_what_the_manifest_declares(self, world: World) -> None:
        result = await world.repo.provisioner("alice").apply(FULL)
        assert (result.created, result.updated, result.deleted) == (7, 0, 0)
        system = [Limit.per_minute("rpm", 100), Limit.per_hour("tpm", 9, burst=12)]
        assert await world.repo.get_system_defaults() == (system, OnUnavailable.ALLOW)
        assert await world.repo.get_resource_defaults(API) == [Limit.custom("rpm", 60, 50, 30)]
        assert await world.repo.get_limits(USER, API) == [Limit.per_minute("rpm", 5)]
        assert await world.repo.get_limits("team") == [Limit.per_minute("rpm", 8)]
        entity = await world.repo.get_entity(USER)
        assert entity is not None
        assert (entity.parent_id, entity.cascade) == ("team", True)
        assert await world.repo.list_resources_with_defaults() == [API]
        assert await world.repo.list_resources_with_entity_configs() == ["_default_", API]
        assert (await world.repo.list_entities_with_custom_limits(API))[0] == [USER]

    async def test_the_parents_that_a_manifest_names_are_registered(self, world: World) -> None:
        manifest = declare(
            entities={
                USER: {"parent": "team", "cascade": True},
                "other": {"parent": "alone", **rates(rpm=5)},
                "team": rates(rpm=8),
            }
        )
        provisioner = world.repo.provisioner("alice")
        await provisioner.apply(manifest)
        for parent in ("team", "alone"):
            entity = await world.repo.get_entity(parent)
            assert entity is not None
            assert (entity.parent_id, entity.cascade) == (None, False)
        assert (await provisioner.plan(manifest)).is_empty
        assert await provisioner.diff(manifest) == []
        await world.repo.delete_entity("alone", "bob")
        (drift,) = await provisioner.diff(manifest)
        assert (str(drift.target), drift.principal) == ("entity alone", "bob")
        assert drift.cause is DriftCause.BY_HAND
        await provisioner.apply(manifest)
        assert await world.repo.get_entity("alone") is not None
        await provisioner.apply(declare(entities={"team": rates(rpm=8)}))
        assert await world.repo.get_entity("alone") is None
        assert await world.repo.get_entity("team") is None
        assert await world.repo.get_limits("team") == [Limit.per_minute("rpm", 8)]

    async def test_an_entity_is_registered_with_nothing_but_limits(self, world: World) -> None:
        entities: dict[str, Any] = {
            USER: {"registered": True, **rates(rpm=5)},
            "empty": {},
            "limits-alone": rates(rpm=5),
            "child": {"parent": "ghost"},
            "ghost": {"registered": False},
        }
        provisioner = world.repo.provisioner()
        await provisioner.apply(declare(entities=entities))
        registered, _ = await world.repo.list_entities()
        assert sorted(entity.id for entity in registered) == sorted([USER, "empty", "child"])
        exported = await provisioner.export()
        assert exported.to_dict()["entities"] == {
            "child": {"parent": "ghost", "cascade": False},
            "empty": {"registered": True},
            "ghost": {"registered": False},
            "limits-alone": {"resources": {"_default_": rates(rpm={"capacity": 5})}},
            USER: {"registered": True, "resources": {"_default_": rates(rpm={"capacity": 5})}},
        }
        assert (await provisioner.apply(LimitsManifest.from_dict(exported.to_dict()))).changes == []

    async def test_a_registration_leaves_the_parent_of_an_entity_alone(self, world: World) -> None:
        await world.repo.create_entity("team", "Team", "org", True)
        manifest = declare(entities={"key": {"parent": "team"}, "org": {}})
        provisioner = world.repo.provisioner()
        await provisioner.apply(manifest)
        team = await world.repo.get_entity("team")
        assert team is not None
        assert (team.name, team.parent_id, team.cascade) == ("Team", "org", True)
        await world.repo.set_parent("org", "group")
        assert (await provisioner.plan(manifest)).is_empty
        await provisioner.apply(declare())
        assert await world.repo.get_entity("key") is None
        assert await world.repo.get_entity("team") == team
        org = await world.repo.get_entity("org")
        assert org is not None, "its parent was given by hand"
        assert org.parent_id == "group"

    async def test_a_parent_that_a_manifest_no_longer_names_is_removed(self, world: World) -> None:
        provisioner = world.repo.provisioner()
        await provisioner.apply(declare(entities={"key": {"parent": "team", "cascade": True}}))
        await provisioner.apply(declare(entities={"key": {"registered": True}}))
        key = await world.repo.get_entity("key")
        assert key is not None
        assert (key.parent_id, key.cascade) == (None, False)
        assert await world.repo.get_entity("team") is None

    async def test_every_change_is_logged_with_its_principal(self, world: World) -> None:
        await world.repo.provisioner("alice").apply(FULL)
        events = await world.repo.get_audit_events()
        actions = sorted(event.action for event in events if event.principal == "alice")
        assert actions == ["entity_created", "entity_created", *["limits_set"] * 4]
        (event,) = await world.repo.get_audit_events("$SYSTEM")
        assert event.details["on_unavailable"] == "allow"
        assert event.details["previous"] is None

    async def test_every_change_of_a_large_apply_is_in_the_log_of_its_subject(
        self, world: World
    ) -> None:
        ids = [f"entity-{number}" for number in range(MANY)]
        for rate in (3, 4):
            entities = {each: {"parent": "team", **rates(rpm=rate)} for each in ids}
            await world.repo.provisioner("alice").apply(declare(entities=entities))
        await world.repo.set_limits(ids[0], [OTHER], principal="bob")
        named = ("alice", "bob")
        everything = [event for event in await _all_events(world) if event.principal in named]
        assert len(everything) == 3 * MANY + 2, "their parent is registered"
        for each in ids[:: MANY // 8]:
            about_it = [event for event in everything if event.entity_id == each]
            assert await world.repo.get_audit_events(each) == about_it
            assert await _all_events(world, each) == about_it, "in pages"
            assert {event.principal for event in about_it[-3:]} == {"alice"}
            updated, placed = about_it[-3], about_it[-1]
            assert updated.details["previous"]["limits"][0]["capacity"] == 3
            assert {about_it[-2].action, placed.action} == {"limits_set", "entity_created"}

    async def test_a_second_apply_changes_nothing(self, world: World) -> None:
        provisioner = world.repo.provisioner()
        await provisioner.apply(FULL)
        state, events = (
            await world.repo.get_provisioner_state(),
            await world.repo.get_audit_events(),
        )
        plan = await provisioner.plan(FULL)
        assert (plan.changes, plan.adopted, plan.unchanged) == ([], 0, 7)
        result = await provisioner.apply(FULL)
        assert (result.created, result.updated, result.deleted, result.unchanged) == (0, 0, 0, 7)
        assert await world.repo.get_provisioner_state() == state
        assert await world.repo.get_audit_events() == events

    async def test_what_the_manifest_drops_is_deleted_and_no_more(self, world: World) -> None:
        await world.repo.set_limits("by-hand", [OTHER], API)
        await world.repo.set_limits(USER, [OTHER], "another")
        await world.repo.provisioner().apply(FULL)
        result = await world.repo.provisioner().apply(declare())
        assert (result.created, result.updated, result.deleted) == (0, 0, 7)
        assert await world.repo.get_system_defaults() == ([], None)
        assert await world.repo.list_resources_with_defaults() == []
        assert await world.repo.get_entity(USER) is None
        assert await world.repo.list_resources_with_entity_configs() == ["another", API]
        assert await world.repo.get_limits("by-hand", API) == [OTHER]
        assert await world.repo.get_limits(USER, "another") == [OTHER]

    async def test_changes_by_hand_are_undone(self, world: World) -> None:
        provisioner = world.repo.provisioner()
        await provisioner.apply(FULL)
        await world.repo.set_limits(USER, [OTHER], API)
        await world.repo.delete_resource_defaults(API)
        await world.repo.set_parent(USER, "another-team")
        await world.repo.set_system_defaults([OTHER], on_unavailable="block")
        result = await provisioner.apply(FULL)
        assert (result.created, result.updated, result.deleted, result.unchanged) == (1, 4, 0, 2)
        assert (await provisioner.plan(FULL)).is_empty
        assert (await provisioner.export()).to_dict()["entities"][USER]["parent"] == "team"

    async def test_a_diff_names_the_last_change_of_what_differs(self, world: World) -> None:
        provisioner = world.repo.provisioner("alice")
        await provisioner.apply(FULL)
        assert await provisioner.diff(FULL) == []
        world.clock.advance(ms=60_000)
        await world.repo.set_limits(USER, [RPM], "another", principal="carol")
        await world.repo.set_limits(USER, [OTHER], API, principal="bob")
        await world.repo.set_parent(USER, None, principal="dave")
        event = (await world.repo.get_audit_events(USER))[1]
        place, limits = await provisioner.diff(FULL)
        assert (limits.cause, limits.principal) == (DriftCause.BY_HAND, "bob")
        assert limits.changed_at == event.timestamp
        assert limits.live is not None
        assert limits.declared is not None
        assert (limits.live.limits, limits.declared.limits) == (
            (OTHER,),
            (Limit.per_minute("rpm", 5),),
        )
        assert (place.cause, place.principal) == (DriftCause.BY_HAND, "dave")

    async def test_a_manifest_that_was_edited_is_no_change_by_hand(self, world: World) -> None:
        provisioner = world.repo.provisioner("alice")
        await provisioner.apply(declare(resources={API: rates(rpm=10)}))
        edited = declare(resources={API: rates(rpm=20), "new": rates(rpm=1)})
        causes = {drift.target.resource: drift.cause for drift in await provisioner.diff(edited)}
        assert causes == {API: DriftCause.NOT_APPLIED, "new": DriftCause.NOT_APPLIED}
        (dropped,) = await provisioner.diff(declare())
        assert (dropped.cause, dropped.declared) == (DriftCause.NOT_APPLIED, None)
        await world.repo.delete_resource_defaults(API, principal="eve")
        gone = (await provisioner.diff(edited))[0]
        assert (gone.cause, gone.live, gone.principal) == (DriftCause.BY_HAND, None, "eve")

    async def test_limits_without_room_beside_those_that_they_replace_are_refused_by_the_plan(
        self, world: World
    ) -> None:
        old, new = ({f"{name}-{number}": 10 for number in range(32)} for name in ("old", "new"))
        provisioner = world.repo.provisioner("alice")
        await provisioner.apply(declare(resources={API: rates(**old)}))
        refused = declare(resources={API: rates(**new)})
        for refuse in (provisioner.plan, provisioner.apply):
            with pytest.raises(ValidationError, match="replace some of them now") as caught:
                await refuse(refused)
            assert caught.value.field == f"resource {API}"
        some = {**dict(list(old.items())[:20]), **dict(list(new.items())[:12])}
        assert (await provisioner.apply(declare(resources={API: rates(**some)}))).updated == 1

    async def test_live_buckets_follow(self, world: World) -> None:
        provisioner = world.repo.provisioner()
        await provisioner.apply(declare(system=rates(rpm=10)))
        await world.take(rpm=4)
        await provisioner.apply(declare(system=rates(rpm=100)))
        await world.take(rpm=1)
        assert await world.tokens("rpm") == 5
        world.clock.advance(ms=60_000)
        assert await world.tokens("rpm") == 100
        await provisioner.apply(declare(system=rates(rpm=100), entities={USER: rates(rpm=3)}))
        assert not await world.granted(rpm=4)

    async def test_a_parent_is_charged_once_the_manifest_says_so(self, world: World) -> None:
        provisioner = world.repo.provisioner()
        await provisioner.apply(declare(system=rates(rpm=10)))
        await world.take(rpm=1)
        cascading = {USER: {"parent": "team", "cascade": True}}
        await provisioner.apply(declare(system=rates(rpm=10), entities=cascading))
        await world.take(rpm=2)
        assert await world.tokens("rpm", "team") == 8
        assert await world.tokens("rpm") == 7
        await provisioner.apply(declare(system=rates(rpm=10)))
        await world.take(rpm=2)
        assert await world.tokens("rpm", "team") == 8
        assert await world.tokens("rpm") == 5, "the bucket stays when its entity is unregistered"

    async def test_an_entity_registered_by_hand_only_loses_its_parent(self, world: World) -> None:
        await world.repo.create_entity(USER, name="User", metadata={"tier": "gold"})
        provisioner = world.repo.provisioner()
        await provisioner.apply(FULL)
        entity = await world.repo.get_entity(USER)
        assert entity is not None
        assert (entity.parent_id, entity.name) == ("team", "User")
        await provisioner.apply(declare())
        entity = await world.repo.get_entity(USER)
        assert entity is not None
        assert (entity.parent_id, entity.cascade, entity.metadata) == (
            None,
            False,
            {"tier": "gold"},
        )

    async def test_an_outage_policy_is_managed_only_if_it_is_named(self, world: World) -> None:
        await world.repo.set_system_defaults([OTHER], on_unavailable="allow")
        provisioner = world.repo.provisioner()
        await provisioner.apply(declare(system=rates(rpm=10)))
        assert await world.repo.get_system_defaults() == ([RPM], OnUnavailable.ALLOW)
        await provisioner.apply(declare())
        assert await world.repo.get_system_defaults() == ([], OnUnavailable.ALLOW)
        await provisioner.apply(declare(system={"on_unavailable": "block"}))
        assert await world.repo.get_system_defaults() == ([], OnUnavailable.BLOCK)
        await world.repo.set_system_defaults([OTHER])
        await provisioner.apply(declare())
        assert await world.repo.get_system_defaults() == ([OTHER], None)

    async def test_what_exists_is_adopted_by_an_export(self, world: World) -> None:
        await world.repo.set_system_defaults([RPM, Limit.custom("tpm", 5, 1, 90)])
        await world.repo.set_limits(USER, [OTHER], API)
        await world.repo.set_limits("odd: id", [OTHER, *QUOTAS])
        await world.repo.create_entity("child", parent_id="team", cascade=True)
        await world.repo.create_entity("alone", name="Alone")
        provisioner = world.repo.provisioner()
        exported = LimitsManifest.from_dict((await provisioner.export()).to_dict())
        plan = await provisioner.plan(exported)
        assert (plan.changes, plan.adopted) == ([], 5)
        result = await provisioner.apply(exported)
        assert (result.adopted, result.unchanged, result.changes) == (5, 0, [])
        plan = await provisioner.plan(exported)
        assert (plan.changes, plan.adopted, plan.unchanged) == ([], 0, 5)
        assert (await provisioner.apply(declare())).deleted == 3
        entities = {"alone": {"registered": True}, "child": {"registered": True}}
        left = (await provisioner.export()).to_dict()
        assert left == {"namespace": "default", "entities": entities}, "they stay registered"

    async def test_a_changed_quota_is_planned_and_compared(self, world: World) -> None:
        provisioner = world.repo.provisioner()
        monthly = "1M/month @ Europe/Berlin"
        limits = {"tokens": monthly, "usd": {"budget": "12.50", "per": "day"}}
        await provisioner.apply(declare(resources={API: rates(**limits)}))
        tokens = Limit.quota("tokens", 10**6, per="month", zone="Europe/Berlin")
        assert await world.repo.get_resource_defaults(API) == [
            tokens,
            Limit.budget("usd", "12.50", per="day"),
        ]
        more = {"tokens": f"{monthly},hold=2s", "usd": "12.50USD/day@UTC"}
        manifest = declare(resources={API: rates(**more)})
        [change] = (await provisioner.plan(manifest)).changes
        assert (change.target.kind, change.target.resource) == (TargetKind.RESOURCE, API)
        await provisioner.apply(manifest)
        assert (await world.repo.get_resource_defaults(API))[0].hold_ttl == 2
        await world.repo.set_resource_defaults(API, [tokens])
        [drift] = await provisioner.diff(manifest)
        assert drift.target == change.target

    async def test_many_entities_take_several_batches_and_pages(self, world: World) -> None:
        ids = [f"entity-{number}" for number in range(MANY)]
        manifest = declare(entities={each: {"resources": {API: rates(rpm=3)}} for each in ids})
        seen: list[tuple[int, int]] = []
        provisioner = world.repo.provisioner()
        result = await provisioner.apply(
            manifest, progress=lambda done, total: seen.append((done, total))
        )
        assert result.created == MANY
        done = [each for each, _ in seen]
        assert [total for _, total in seen] == [MANY] * len(seen)
        assert len(done) > 1
        assert done == sorted(set(done))
        assert done[-1] == MANY
        state = await world.repo.get_provisioner_state()
        assert state is not None
        assert (state["pages"], state["managed_entities"]) == (1, {})
        assert (await provisioner.plan(manifest)).is_empty
        fewer = declare(entities={each: {"resources": {API: rates(rpm=3)}} for each in ids[1:]})
        assert (await provisioner.apply(fewer)).deleted == 1
        found, _ = await world.repo.list_entities_with_custom_limits(API)
        assert sorted(found) == sorted(ids[1:])

    # --- several applies

    async def test_a_second_apply_names_the_one_in_progress(self, world: World) -> None:
        await world.repo.provisioner().apply(FULL)
        alice, bob = _state(world, "alice"), world.repo.provisioner("bob")
        await alice.read()
        assert await alice.take_lease(0)
        with pytest.raises(ApplyConflict, match="in progress, by alice since"):
            await bob.apply(declare(), wait_seconds=0)
        await alice.release()
        assert (await bob.apply(declare(), wait_seconds=0)).deleted == 7

    async def test_an_apply_that_lost_its_lease_changes_nothing_more(self, world: World) -> None:
        stopped = _state(world, "alice")
        before = await stopped.read()
        assert await stopped.take_lease(0)
        world.clock.advance(ms=LEASE_MS)  # it was stopped for that long, or killed
        await world.repo.provisioner("bob").apply(FULL, wait_seconds=0)
        state = await world.repo.get_provisioner_state()
        with pytest.raises(ApplyConflict, match="another apply has taken over"):
            await stopped.write(before, release=True)
        await stopped.release()
        assert await world.repo.get_provisioner_state() == state

    async def test_a_lease_is_renewed_when_half_of_it_is_over(self, world: World) -> None:
        alice = _state(world, "alice")
        await alice.read()
        assert await alice.take_lease(0)
        for _ in range(3):
            world.clock.advance(ms=LEASE_MS * 2 // 3)
            await alice.renew_lease()
        with pytest.raises(ApplyConflict, match="in progress"):
            await world.repo.provisioner("bob").apply(FULL, wait_seconds=0)

    async def test_an_apply_that_failed_half_way_is_finished_by_the_next(
        self, world: World
    ) -> None:
        entities = {f"entity-{number}": rates(rpm=3) for number in range(60)}
        provisioner = world.repo.provisioner()
        with failing():
            await provisioner.apply(declare(entities=entities), progress=_fail)
        made = len((await world.repo.list_entities_with_custom_limits("_default_"))[0])
        assert 0 < made < len(entities)
        plan = await provisioner.plan(declare(entities=entities))
        assert (len(plan.changes), plan.unchanged) == (len(entities) - made, made)
        result = await provisioner.apply(
            declare(resources={API: rates(rpm=1)}), wait_seconds=0, allow_deletions=made
        )
        assert (result.created, result.deleted) == (1, made)
        assert (await world.repo.list_entities_with_custom_limits("_default_"))[0] == []

    async def test_an_approved_plan_is_made_or_refused_as_a_whole(self, world: World) -> None:
        provisioner = world.repo.provisioner()
        approved = await provisioner.plan(FULL)
        await provisioner.apply(declare(system=rates(rpm=1)))
        with pytest.raises(ApplyConflict, match="plan again"):
            await provisioner.apply(FULL, approved=approved.revision)
        assert await world.repo.get_limits(USER, API) == []
        approved = await provisioner.plan(FULL)
        assert (await provisioner.apply(FULL, approved=approved.revision)).updated == 1

    async def test_modes_are_applied_exported_and_compared(self, world: World) -> None:
        repo, provisioner = world.repo, world.repo.provisioner("ci")
        declared = declare(
            resources={API: {"mode": "shadow", **rates(rpm=5)}, "images": {"mode": "deny"}},
            entities={USER: {"mode": "bypass", "resources": {API: {"mode": "enforce"}}}},
        )
        assert (await provisioner.apply(declared)).created == 5
        assert await repo.get_mode(API) == Switch(SwitchMode.SHADOW)
        assert await repo.get_mode(entity_id=USER) == Switch(SwitchMode.BYPASS)
        assert await repo.get_mode(API, USER) == Switch(SwitchMode.ENFORCE)
        exported = await provisioner.export()
        assert (await provisioner.plan(exported)).is_empty
        await repo.set_mode(API, mode="deny", principal="eve")
        (drift,) = await provisioner.diff(declared)
        assert (drift.target.kind, drift.cause) == (TargetKind.MODE, DriftCause.BY_HAND)
        assert drift.principal == "eve"
        again = declare(resources={API: {"mode": "enforce", **rates(rpm=5)}})
        result = await provisioner.apply(again)
        assert (result.updated, result.deleted, result.unchanged) == (1, 3, 1)
        assert await repo.get_mode(API) is None
        assert await repo.get_mode(API, USER) is None
        assert await repo.get_resource_defaults(API) == [Limit.per_minute("rpm", 5)]
        assert (await provisioner.plan(again)).is_empty
        assert await repo.list_resources_with_defaults() == [API]
        assert await repo.list_resources_with_entity_configs() == []
        newest = (await repo.get_audit_events(f"$RESOURCE:{API}"))[0]
        assert (newest.action, newest.principal, newest.details["mode"]) == ("mode_set", "ci", None)

    async def test_modes_that_no_manifest_names_stay(self, world: World) -> None:
        provisioner = world.repo.provisioner()
        await world.repo.set_mode(API, mode="deny")
        await provisioner.apply(declare(resources={API: rates(rpm=5)}))
        await provisioner.apply(declare())
        assert await world.repo.get_mode(API) == Switch(SwitchMode.DENY)
        assert await world.repo.get_resource_defaults(API) == []

    async def test_a_manifest_of_another_namespace_is_refused(self, world: World) -> None:
        with pytest.raises(ValidationError, match="is not the namespace 'default'"):
            await world.repo.provisioner().apply(declare(namespace="other", system=rates(rpm=1)))


def _state(world: World, principal: str) -> StateStore:
    """Return the managed state during an apply."""
    return StateStore(world.repo._context, principal, LEASE_MS)  # noqa: SLF001 - below the API


def _fail(done: int, total: int) -> None:
    raise Failure


async def _all_events(world: World, subject: str | None = None) -> list[AuditEvent]:
    """Read the audit log in small pages."""
    events: list[AuditEvent] = []
    while page := await world.repo.get_audit_events(
        subject, 50 if subject is None else 1, events[-1].event_id if events else None
    ):
        events += page
    assert [each.event_id for each in events] == sorted(
        {each.event_id for each in events}, reverse=True
    )
    return events
