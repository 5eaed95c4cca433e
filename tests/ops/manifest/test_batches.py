"""Changes of an apply in batches: how many fit a transaction, and in which order they are made."""

from itertools import pairwise

import pytest

from zae_limiter.models.audit import BUNDLED_EVENTS, BUNDLES, bundle_of
from zae_limiter.models.batch import MAX_ACTIONS, MAX_CHANGES, in_batches
from zae_limiter_ops._async.provisioner.apply_changes import ordered_batches
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.diff import compute_diff
from zae_limiter_ops.manifest.state import Managed
from zae_limiter_ops.manifest.targets import wanted_settings


def actions(subjects):
    """Return the number of actions: one per changed item, and one per item of events."""
    bundled = [0] * BUNDLES
    for subject in subjects:
        bundled[bundle_of(subject)] += 1
    return len(subjects) + sum(-(-count // BUNDLED_EVENTS) for count in bundled)


@pytest.mark.parametrize("count", [0, 1, MAX_CHANGES, MAX_CHANGES + 1, 3000])
@pytest.mark.parametrize("key", [None, bundle_of])
def test_as_many_changes_as_fit_a_transaction(count, key):
    subjects = [f"entity-{number}" for number in range(count)]
    if key is not None:
        subjects.sort(key=key)
    batches = list(in_batches(subjects, str))
    assert [subject for batch in batches for subject in batch] == subjects
    assert all(actions(batch) <= MAX_ACTIONS for batch in batches)
    for batch, after in pairwise(batches):
        assert actions([*batch, after[0]]) > MAX_ACTIONS, "one more would have fitted"
    assert len(batches) <= -(-count // MAX_CHANGES)


def test_a_batch_of_one_subject_has_an_item_for_every_20_events():
    first, second = in_batches(["user"] * 96, str)
    assert (len(first), len(second)) == (91, 5)


def manifest(**sections):
    return LimitsManifest.from_dict(sections)


def limited(rate):
    return {"limits": {"rpm": rate}}


def test_what_is_set_comes_before_what_is_deleted_and_defaults_come_first():
    before = wanted_settings(
        manifest(
            system={"on_unavailable": "block"},
            resources={"old": limited(1)},
            entities={f"gone-{number}": limited(1) for number in range(500)},
        )
    )
    after = manifest(
        system=limited(1),
        resources={"new": limited(1)},
        entities={f"new-{number}": limited(2) for number in range(500)},
    )
    managed = Managed({target: setting.digest() for target, setting in before.items()})
    changes = compute_diff(after, managed, before)
    ordered = [change for batch in ordered_batches(changes) for change in batch]
    assert sorted(map(str, ordered)) == sorted(map(str, changes))
    kinds = []
    for change in ordered:
        kind = change.action.value, change.target.kind.value
        if not kinds or kinds[-1] != kind:
            kinds.append(kind)
    assert sorted(kinds[:2]) == [("create", "system"), ("delete", "on_unavailable")]
    assert kinds[2:] == [
        ("create", "resource"),
        ("create", "entity_limits"),
        ("delete", "entity_limits"),
        ("delete", "resource"),
    ]
