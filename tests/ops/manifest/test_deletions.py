"""An empty manifest is a mistake, and so are deletions of much of what exists."""

import pytest

from zae_limiter import SyncRepository
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.deletions import DeletionsRefused, check_deletions
from zae_limiter_ops.manifest.problems import ManifestError


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        "# nothing",
        "namespace: default",
        "system: {}",
        "resources: {}",
        "entities:\n",
    ],
)
def test_a_manifest_that_declares_nothing_is_refused(text):
    with pytest.raises(ManifestError, match="declares no setting"):
        LimitsManifest.from_yaml(text)


@pytest.mark.parametrize("document", [{}, {"namespace": "default"}, {"system": {"limits": {}}}])
def test_a_document_that_declares_nothing_is_refused(document):
    with pytest.raises(ManifestError, match="declares no setting"):
        LimitsManifest.from_dict(document)


@pytest.mark.parametrize("text", ["entities: {key-1: {}}", "system: {on_unavailable: allow}"])
def test_one_setting_is_enough(text):
    assert LimitsManifest.from_yaml(text)


@pytest.mark.parametrize(
    ("deleted", "existing", "allowed"),
    [
        (11, 11, None),
        (11, 43, None),
        (2501, 10_000, None),
        (2501, 10_000, 2500),
        (1, 100, 0),
    ],
)
def test_more_than_ten_and_more_than_a_quarter_are_too_many(deleted, existing, allowed):
    with pytest.raises(DeletionsRefused, match=f"--allow-deletions {deleted}"):
        check_deletions(deleted, existing, allowed)


@pytest.mark.parametrize(
    ("deleted", "existing", "allowed"),
    [(10, 10, None), (11, 44, None), (2500, 10_000, None), (2501, 10_000, 2501)],
)
def test_ten_or_a_quarter_or_as_many_as_are_allowed_may_be_deleted(deleted, existing, allowed):
    check_deletions(deleted, existing, allowed)


def resources(count):
    names = [f"model-{number}" for number in range(count)]
    return LimitsManifest.from_dict({"resources": {name: {"limits": {"rpm": 5}} for name in names}})


def test_an_apply_from_a_program_is_refused_before_anything_is_changed():
    with SyncRepository.open(url="memory://") as repository:
        provisioner = repository.provisioner()
        provisioner.apply(resources(20))
        before = repository.get_audit_events()
        for allowed in (None, 0, 18):
            with pytest.raises(DeletionsRefused, match="19 of 20 managed settings"):
                provisioner.apply(resources(1), allow_deletions=allowed)
        assert repository.get_audit_events() == before
        assert len(repository.list_resources_with_defaults()) == 20
        assert provisioner.apply(resources(1), allow_deletions=19).deleted == 19


def test_settings_that_were_deleted_by_hand_do_not_count():
    with SyncRepository.open(url="memory://") as repository:
        provisioner = repository.provisioner()
        provisioner.apply(resources(40))
        for number in range(10, 40):
            repository.delete_resource_defaults(f"model-{number}")
        assert provisioner.plan(resources(1)).to_dict()["existing"] == 10
        assert provisioner.apply(resources(1)).deleted == 9
