"""An apply that is cancelled or interrupted gives its lease back, and the next one finishes."""

import asyncio

import pytest

from zae_limiter import Repository, SyncRepository
from zae_limiter_ops.manifest import LimitsManifest

MANIFEST = LimitsManifest.from_dict(
    {"entities": {f"entity-{number}": {"limits": {"rpm": 5}} for number in range(120)}}
)


async def test_a_cancelled_apply(tmp_path):
    async with Repository.open(url=f"sqlite:///{tmp_path}/limits.db") as repo:
        provisioner = repo.provisioner("alice")
        task = asyncio.ensure_future(
            provisioner.apply(MANIFEST, progress=lambda done, total: task.cancel())
        )
        with pytest.raises(asyncio.CancelledError):
            await task
        state = await repo.get_provisioner_state()
        assert state["lease"] is None
        plan = await provisioner.plan(MANIFEST)
        assert 0 < len(plan.changes) < 120
        result = await provisioner.apply(MANIFEST, wait_seconds=0)
        assert result.created == len(plan.changes)
        assert (await provisioner.plan(MANIFEST)).is_empty


def test_ctrl_c(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with SyncRepository.open(url=f"sqlite:///{tmp_path}/limits.db") as repo:
        provisioner = repo.provisioner("alice")
        with pytest.raises(KeyboardInterrupt):
            provisioner.apply(MANIFEST, progress=interrupt)
        assert repo.get_provisioner_state()["lease"] is None
        assert 0 < provisioner.apply(MANIFEST, wait_seconds=0).created < 120
        assert provisioner.plan(MANIFEST).is_empty


async def test_a_second_apply_waits_for_the_first_one(tmp_path):
    async with Repository.open(url=f"sqlite:///{tmp_path}/limits.db") as repo:
        first, second = repo.provisioner("alice"), repo.provisioner("bob")
        begun = asyncio.Event()
        other = LimitsManifest.from_dict({"entities": {"entity-1": {"limits": {"rpm": 9}}}})
        task = asyncio.ensure_future(first.apply(MANIFEST, progress=lambda *_: begun.set()))
        await begun.wait()
        result = await second.apply(other, allow_deletions=119, wait_seconds=60)
        assert (await task).created == 120
        assert (result.updated, result.deleted) == (1, 119)
        assert (await second.plan(other)).is_empty
