"""What was acknowledged survives whatever happens to the process."""

import random

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.sqlite.granting_child import AT_ONCE
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

LIMIT = Limit.custom("rpm", 1_000_000, 1, 86_400)


@pytest.mark.parametrize("tree", [pytest.param("sync", marks=pytest.mark.slow), "async"])
def test_a_killed_process_loses_no_grant_that_it_has_acknowledged(start, url, tree):
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([LIMIT])
    acknowledged = 0
    for seed in range(3):
        acknowledged += _grants_until_killed(start("granting_child.py", tree, url), seed)
        consumed = _consumed(url)
        assert consumed >= acknowledged
        assert consumed <= acknowledged + AT_ONCE
        acknowledged = consumed


def test_a_killed_process_leaves_no_lock(start, url):
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([LIMIT])
        child = start("granting_child.py", "sync", url)
        child.stdout.readline()
        child.kill()
        acquire = SyncRateLimiter(repository).acquire("user", "api", {"rpm": 1})
        with Stopwatch() as watch, acquire:
            pass
        assert watch.within(1)


def test_a_store_that_was_not_closed_can_be_copied_and_read(start, url, path, tmp_path):
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([LIMIT])
    acknowledged = _grants_until_killed(start("granting_child.py", "sync", url), 1)
    for suffix in ("", "-wal"):
        copy = tmp_path / f"copy.db{suffix}"
        copy.write_bytes((path.parent / f"{path.name}{suffix}").read_bytes())
    assert _consumed(f"sqlite:///{tmp_path}/copy.db") >= acknowledged


def _grants_until_killed(child, seed):
    """How many grants the child reported before it was killed in the middle of its work."""
    wanted = random.Random(seed).randint(20, 300)
    numbers = [int(child.stdout.readline()) for _ in range(wanted)]
    child.kill()
    return len(numbers) + child.stdout.read().count(b"\n")


def _consumed(url):
    with SyncRepository.open(url=url) as repository:
        state = repository.get_bucket("user", "api", "rpm")
        assert state.tokens == LIMIT.capacity - state.total_consumed_milli // 1000
        return state.total_consumed_milli // 1000
