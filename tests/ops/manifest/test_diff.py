"""Plans and drift, without a store."""

from zae_limiter.models.limit import Limit
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.diff import LimitsPlan, compute_diff
from zae_limiter_ops.manifest.drift import DriftCause, compute_drift
from zae_limiter_ops.manifest.state import PENDING, Managed
from zae_limiter_ops.manifest.targets import (
    ALONE,
    Action,
    Setting,
    Target,
    TargetKind,
    wanted_settings,
)

API = Target(TargetKind.RESOURCE, resource="api")
USER = Target(TargetKind.ENTITY, "user")
OLD, NEW = (Setting((Limit.per_minute("rpm", rate),)) for rate in (5, 9))
MANIFEST = LimitsManifest.from_dict({"resources": {"api": {"limits": {"rpm": 9}}}})


def managed(*targets, registered=()):
    return Managed(dict.fromkeys(targets, OLD.digest()), frozenset(registered))


def changes(manifest, state, live):
    return [(change.action, str(change.target)) for change in compute_diff(manifest, state, live)]


def test_a_target_is_created_updated_left_alone_or_deleted():
    assert changes(MANIFEST, Managed(), {}) == [(Action.CREATE, "resource api")]
    assert changes(MANIFEST, Managed(), {API: OLD}) == [(Action.UPDATE, "resource api")]
    assert changes(MANIFEST, Managed(), {API: NEW}) == []
    empty = LimitsManifest()
    assert changes(empty, managed(API), {API: OLD}) == [(Action.DELETE, "resource api")]
    assert changes(empty, managed(API), {}) == []
    assert changes(empty, Managed(), {API: OLD}) == []


def test_the_order_of_limits_is_no_difference():
    limits = (Limit.per_minute("tpm", 5), Limit.per_minute("rpm", 9))
    manifest = LimitsManifest.from_dict({"resources": {"api": {"limits": {"rpm": 9, "tpm": 5}}}})
    assert changes(manifest, Managed(), {API: Setting(limits)}) == []


def test_defaults_come_first_and_leave_last():
    everything = LimitsManifest.from_dict(
        {
            "entities": {"b": {"parent": "t", "limits": {"rpm": 1}}, "a": {"limits": {"rpm": 1}}},
            "resources": {"api": {"limits": {"rpm": 1}}},
            "system": {"on_unavailable": "block", "limits": {"rpm": 1}},
        }
    )
    order = [
        "system",
        "system on_unavailable",
        "resource api",
        "entity b",
        "entity t",
        "entity a on _default_",
        "entity b on _default_",
    ]
    assert [target for _, target in changes(everything, Managed(), {})] == order
    wanted = wanted_settings(everything)
    live = {target: wanted[target]._replace(keeps_place=False) for target in wanted}
    state = LimitsPlan.of(wanted, Managed(), {}).managed_after()
    assert [target for _, target in changes(LimitsManifest(), state, live)] == order[::-1]


def test_an_entity_is_unregistered_only_if_an_apply_has_registered_it():
    child = Setting(parent="team", cascade=True)
    empty = LimitsManifest()
    ours = managed(USER, registered=["user"])
    assert compute_diff(empty, ours, {USER: child})[0].action is Action.DELETE
    (change,) = compute_diff(empty, managed(USER), {USER: child})
    assert (change.action, change.after) == (Action.UPDATE, ALONE)
    assert compute_diff(empty, managed(USER), {USER: ALONE}) == []
    (change,) = compute_diff(empty, ours, {USER: child._replace(is_described=True)})
    assert (change.action, change.after) == (Action.UPDATE, ALONE)


def test_a_registration_that_was_interrupted_leaves_the_parent_alone():
    manifest = LimitsManifest.from_dict({"entities": {"user": {}}})
    plan = LimitsPlan.of(wanted_settings(manifest), Managed(), {})
    during, child = plan.managed_during(), {USER: Setting(parent="by-hand")}
    assert changes(manifest, during, {}) == [(Action.CREATE, "entity user")]
    assert changes(manifest, during, child) == []
    assert changes(LimitsManifest(), during, child) == []
    assert changes(LimitsManifest(), during, {USER: ALONE}) == [(Action.DELETE, "entity user")]
    again = LimitsPlan.of(wanted_settings(manifest), during, {})
    (drift,) = compute_drift(again, {})
    assert drift.cause is DriftCause.NOT_APPLIED
    placed = Managed({USER: PENDING}, frozenset(["user"]))
    assert changes(manifest, placed, child) == [(Action.UPDATE, "entity user")]


def test_what_an_apply_will_change_is_pending_until_it_is_done():
    other = Target(TargetKind.RESOURCE, resource="other")
    plan = LimitsPlan.of(wanted_settings(MANIFEST), managed(other), {API: OLD, other: OLD})
    assert plan.managed_during().digests == {API: PENDING, other: PENDING}
    assert plan.managed_after().digests == {API: NEW.digest()}


def test_drift_is_by_hand_if_the_last_apply_has_left_something_else():
    def cause(state, live):
        plan = LimitsPlan.of(wanted_settings(MANIFEST), state, live)
        (drift,) = compute_drift(plan, live)
        return drift.cause

    assert cause(managed(API), {API: OLD}) is DriftCause.NOT_APPLIED
    assert cause(Managed({API: NEW.digest()}), {API: OLD}) is DriftCause.BY_HAND
    assert cause(Managed({API: NEW.digest()}), {}) is DriftCause.BY_HAND
    assert cause(Managed({API: PENDING}), {API: OLD}) is DriftCause.NOT_APPLIED
    assert cause(Managed(), {}) is DriftCause.NOT_APPLIED
    assert cause(Managed(), {API: OLD}) is DriftCause.BY_HAND


def test_plans_changes_and_drifts_are_plain_data():
    plan = LimitsPlan.of(wanted_settings(MANIFEST), Managed(), {API: OLD})
    assert plan.to_dict() == {
        "changes": [
            {
                "action": "update",
                "kind": "resource",
                "entity_id": None,
                "resource": "api",
                "before": {"limits": {"rpm": {"capacity": 5}}},
                "after": {"limits": {"rpm": {"capacity": 9}}},
            }
        ],
        "create": 0,
        "update": 1,
        "delete": 0,
        "adopt": 0,
        "unchanged": 0,
        "existing": 0,
        "revision": "",
    }
