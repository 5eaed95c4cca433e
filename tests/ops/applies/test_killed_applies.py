"""An apply is killed at a random moment; the next one finishes, and the state is right."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import Limit, SyncRepository
from zae_limiter_ops.manifest.declarations import LimitsManifest
from zae_limiter_ops.manifest.deletions import ALL

CHILD = Path(__file__).with_name("applying_child.py")
FEW, MANY = 100, 400  # entities of a manifest: a few batches, or ten; the state has further pages
BY_HAND = "by-hand"


def manifest(seed, count):
    """Return limits and parents of some entities, chosen by the seed."""
    chance = random.Random(seed)
    entities = {}
    for number in chance.sample(range(count * 2), count):
        entity = {"resources": {"api": {"limits": {"rpm": chance.randint(1, 3)}}}}
        if chance.random() < 0.3:
            entity |= {"parent": f"team-{chance.randint(1, 5)}", "cascade": True}
        entities[f"a-rather-long-name-of-an-entity-{number}"] = entity
    return {"system": {"limits": {"rpm": seed + 1}}, "entities": entities}


@pytest.fixture(params=["sqlite", "dynamodb"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/limits.db"
        return
    with empty_table() as table:
        yield store_url(table, shared_endpoint())


def begin(url, path):
    """Start an apply in a process of its own; it is about to write when this returns."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), url, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    return child


def kill_some(url, folder, moments, count):
    path = folder / "manifest.json"
    chance = random.Random()
    with (
        SyncRepository.builder()
        .url(url)
        .request_timeout(30)
        .register_missing_namespace()
        .build() as repo
    ):
        repo.set_limits(BY_HAND, [Limit.per_minute("rpm", 7)], "api")
        path.write_text(json.dumps(manifest(0, count)), encoding="utf-8")
        with begin(url, path) as child:
            began = time.monotonic()
            assert child.wait() == 0
        duration_s = time.monotonic() - began
        killed = 0
        for moment in range(1, moments + 1):
            path.write_text(json.dumps(manifest(moment, count)), encoding="utf-8")
            with begin(url, path) as child:
                time.sleep(chance.uniform(0, duration_s))
                child.kill()
                killed += child.wait() != 0
            seed = chance.choice([moment, 1000 + moment])
            check_next(repo, manifest(seed, count))
    return killed


def check_next(repo, after):
    """The next apply, of the same manifest or another one, finishes what was begun."""
    declared = LimitsManifest.from_dict(after)
    provisioner = repo.provisioner("next")
    provisioner.apply(declared, allow_deletions=ALL)
    exported = provisioner.export().to_dict()
    by_hand = exported["entities"].pop(BY_HAND)
    assert by_hand == {"resources": {"api": {"limits": {"rpm": {"capacity": 7}}}}}
    assert exported == {"namespace": "default", **declared.to_dict()}
    assert provisioner.plan(declared).is_empty
    state = repo.get_provisioner_state()
    assert state["lease"] is None
    assert provisioner.apply(declared).changes == []


def test_the_next_apply_finishes_what_a_killed_one_has_begun(url, tmp_path):
    kill_some(url, tmp_path, 2, FEW)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_next_apply_finishes_at_20_random_moments(url, tmp_path):
    assert kill_some(url, tmp_path, 20, MANY) >= 5, "most applies were over before they were killed"
