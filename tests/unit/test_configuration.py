"""Changes of configuration: content before and a change give content after and an event."""

import pytest

from zae_limiter import Entity, Limit
from zae_limiter.admission.configuration import (
    PlaceChange,
    check_free,
    create_entity,
    delete_namespace,
    namespace_purged,
    purge_namespace,
    recover_namespace,
    register_namespace,
    revise_level,
    revise_place,
)
from zae_limiter.exceptions import (
    EntityExistsError,
    LimitsChangedError,
    NamespaceNotFoundError,
    NamespaceStateError,
)
from zae_limiter.models.config import KEEP, ConfigLevel, LevelChange, LevelConfig, OnUnavailable
from zae_limiter.models.switches import Switch, SwitchMode

RPM, TPM, FAST = Limit.per_minute("rpm", 5), Limit.per_day("tpm", 7), Limit.per_minute("rpm", 9)
ALLOW, BLOCK = OnUnavailable.ALLOW, OnUnavailable.BLOCK
SHADOW, DENY = Switch(SwitchMode.SHADOW), Switch(SwitchMode.DENY, 5000)
NOW_MS = 1_767_225_600_000
AT = "2026-01-01T00:00:00Z"


def level(*limits, policy=None, switch=None):
    return LevelConfig(limits, policy, switch)


def change(limits=KEEP, policy=None, switch=KEEP, **options):
    return LevelChange(ConfigLevel("user", "api"), limits, policy, switch, **options)


@pytest.mark.parametrize(
    ("before", "wanted", "after", "action"),
    [
        (None, change((RPM,)), level(RPM), "limits_set"),
        (level(RPM), change((RPM,)), level(RPM), None),
        (level(RPM, TPM), change((TPM, RPM)), level(RPM, TPM), None),
        (level(RPM, TPM), change((TPM, FAST)), level(TPM, FAST), "limits_set"),
        (level(RPM, policy=ALLOW), change((RPM,)), level(RPM), "limits_set"),
        (level(RPM, policy=ALLOW), change((FAST,), KEEP), level(FAST, policy=ALLOW), "limits_set"),
        (level(RPM, policy=ALLOW), change(KEEP, BLOCK), level(RPM, policy=BLOCK), "limits_set"),
        (level(RPM, switch=DENY), change((FAST,)), level(FAST, switch=DENY), "limits_set"),
        # only what is missing
        (None, change((RPM,), if_missing=True), level(RPM), "limits_set"),
        (level(RPM), change((FAST,), BLOCK, if_missing=True), level(RPM), None),
        (
            level(policy=ALLOW, switch=DENY),
            change((RPM,), BLOCK, if_missing=True),
            level(RPM, policy=ALLOW, switch=DENY),
            "limits_set",
        ),
        # deletions
        (None, change(()), None, None),
        (level(RPM, policy=ALLOW), change(()), None, "limits_deleted"),
        (level(RPM, policy=ALLOW), change((), KEEP), level(policy=ALLOW), "limits_set"),
        (level(RPM, switch=DENY), change(()), level(switch=DENY), "limits_deleted"),
        (level(switch=DENY), change(()), level(switch=DENY), None),
        # switches
        (None, change(KEEP, KEEP, DENY), level(switch=DENY), "mode_set"),
        (level(RPM), change(KEEP, KEEP, DENY), level(RPM, switch=DENY), "mode_set"),
        (level(RPM, switch=DENY), change(KEEP, KEEP, DENY), level(RPM, switch=DENY), None),
        (level(switch=DENY), change(KEEP, KEEP, None), None, "mode_set"),
        (None, change(KEEP, KEEP, None), None, None),
        (level(RPM), change((FAST,), None, DENY), level(FAST, switch=DENY), "limits_set"),
    ],
)
def test_a_change_of_a_level(before, wanted, after, action):
    revised = revise_level(wanted, before)
    assert revised.after == after
    assert revised.is_changed == (action is not None)
    assert (revised.event[0] if revised.event else None) == action


def test_the_event_of_a_level_tells_what_it_was_and_is():
    revised = revise_level(change((FAST,), BLOCK), level(RPM, switch=SHADOW))
    assert revised.event[1] == {
        "limits": [FAST.to_dict()],
        "on_unavailable": "block",
        "mode": {"mode": "shadow", "until": None},
        "previous": {"limits": [RPM.to_dict()], "mode": {"mode": "shadow", "until": None}},
    }
    switched = revise_level(change(KEEP, KEEP, DENY), level(RPM, switch=SHADOW))
    until = "1970-01-01T00:00:05Z"
    previous = {"mode": "shadow", "until": None}
    assert switched.event[1] == {"mode": "deny", "until": until, "previous": previous}
    removed = revise_level(change(KEEP, KEEP, None), level(RPM, switch=SHADOW))
    assert removed.event[1] == {"mode": None, "until": None, "previous": previous}


def test_a_change_replaces_exactly_the_limits_that_it_names():
    revise_level(change((FAST,), replaces=(TPM, RPM)), level(RPM, TPM))
    revise_level(change((FAST,), replaces=()), None)
    for before, replaces in ((level(RPM), (TPM,)), (level(RPM), ()), (None, (RPM,))):
        with pytest.raises(LimitsChangedError):
            revise_level(change((FAST,), replaces=replaces), before)
        with pytest.raises(LimitsChangedError):
            revise_level(change((), replaces=replaces), before)


def test_a_damaged_level_is_always_written_and_its_mode_stays():
    for wanted, after in (
        (change((RPM,)), level(RPM, switch=DENY)),
        (change(()), level(switch=DENY)),
    ):
        revised = revise_level(wanted, level(switch=DENY), is_damaged=True)
        assert revised.after == after
        assert revised.event[1]["previous"] == {"damaged": True}


USER = Entity("user", "Ada", "team", True, {"a": "b"}, AT)


@pytest.mark.parametrize(
    ("before", "wanted", "after", "action"),
    [
        (None, PlaceChange("user", "org"), Entity("user", None, "org", False, {}, AT), "created"),
        (None, PlaceChange("user", keep_place=True), Entity("user", created_at=AT), "created"),
        (USER, PlaceChange("user", "team", True), USER, None),
        (USER, PlaceChange("user", "org", keep_place=True), USER, None),
        (USER, PlaceChange("user"), Entity("user", "Ada", None, False, {"a": "b"}, AT), "parent"),
        (USER, PlaceChange("user", unregister=True), None, "unregistered"),
        (None, PlaceChange("user", unregister=True), None, None),
    ],
)
def test_a_change_of_an_entity_s_place(before, wanted, after, action):
    revised = revise_place(wanted, before, NOW_MS)
    assert revised.after == after
    actions = {"created": "entity_created", "parent": "parent_set"}
    actions["unregistered"] = "entity_unregistered"
    assert (revised.event[0] if revised.event else None) == actions.get(action)


def test_an_entity_is_created_once():
    action, details = create_entity(USER)
    assert action == "entity_created"
    assert details == {"name": "Ada", "parent_id": "team", "cascade": True, "metadata": {"a": "b"}}
    with pytest.raises(EntityExistsError):
        create_entity(USER, exists=True)


def test_a_namespace_lives_is_deleted_and_comes_back_or_is_purged():
    new, event = register_namespace("id", "red", NOW_MS)
    assert event == ("namespace_registered", {"namespace_id": "id"})
    deleted, event = delete_namespace(new, "red", NOW_MS)
    assert (deleted.status, deleted.deleted_at, event[0]) == ("deleted", AT, "namespace_deleted")
    back, event = recover_namespace(deleted, "id")
    assert (back, event[0]) == (new, "namespace_recovered")
    purging = purge_namespace(deleted)
    assert purge_namespace(purging) == purging
    assert namespace_purged(purging) == ("namespace_purged", {"namespace_id": "id"})


def test_a_namespace_takes_no_step_that_is_not_its_turn():
    active, _ = register_namespace("id", "red", NOW_MS)
    deleted, _ = delete_namespace(active, "red", NOW_MS)
    for step in (delete_namespace, recover_namespace):
        with pytest.raises(NamespaceNotFoundError):
            step(None, "red", *([NOW_MS] if step is delete_namespace else []))
    for step in (
        lambda: recover_namespace(active, "id"),
        lambda: recover_namespace(purge_namespace(deleted), "id"),
        lambda: check_free(deleted, is_taken=True),
        lambda: purge_namespace(active),
        lambda: namespace_purged(deleted),
    ):
        with pytest.raises(NamespaceStateError):
            step()
    check_free(deleted, is_taken=False)
