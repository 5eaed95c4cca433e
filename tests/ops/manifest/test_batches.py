"""Changes of an apply in batches: how many fit a transaction, and in which order they are made."""

import pytest

from zae_limiter.admission.configuration import MAX_CHANGES, in_batches
from zae_limiter_ops._async.provisioner.apply_changes import ordered_batches
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.diff import compute_diff
from zae_limiter_ops.manifest.state import Managed
from zae_limiter_ops.manifest.targets import wanted_settings


@pytest.mark.parametrize("count", [0, 1, MAX_CHANGES, MAX_CHANGES + 1, 3000])
def test_as_many_changes_as_fit_a_transaction(count):
    changes = list(range(count))
    batches = list(in_batches(changes))
    assert [change for batch in batches for change in batch] == changes
    assert [len(batch) for batch in batches[:-1]] == [MAX_CHANGES] * (len(batches) - 1)
    assert len(batches) == -(-count // MAX_CHANGES)


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
