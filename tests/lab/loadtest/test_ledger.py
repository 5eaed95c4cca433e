"""The ledger finds what was admitted beyond a limit, and what usage and users count differently."""

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter_lab.loadtest.ledger import LedgerWriter, check_ledger

RPM, TPM = Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)


@pytest.fixture
def repository():
    with SyncRepository.open(url="memory://") as repository:
        repository.set_resource_defaults("gpt", [RPM, TPM])
        repository.create_entity("child", parent_id="parent", cascade=True)
        yield repository


@pytest.fixture
def call(repository, tmp_path):
    limiter, writer = SyncRateLimiter(repository), LedgerWriter(str(tmp_path))

    def call(entity_id="key", used=700, *, fails=False):
        consume = {"rpm": 1, "tpm": 1000}
        entry = writer.entry(entity_id, "gpt", consume)
        try:
            with limiter.acquire(entity_id, "gpt", consume) as lease:
                entry.granted()
                lease.adjust(tpm=used - 1000)
                assert not fails
            entry.ended(lease.consumed)
        except AssertionError:
            entry.failed({})

    call.entry, call.limiter = writer.entry, limiter
    call.check = lambda: (writer.flush(), check_ledger(tmp_path, repository))[1]
    yield call
    writer.close()


def test_a_ledger_that_holds(call):
    for entity_id in ("key", "key", "child"):
        call(entity_id)
    call(used=1500)  # a debt
    call(fails=True)
    found = call.check()
    assert found.problems == ()
    # The parent's bucket counts what its child used, too.
    assert (found.admitted, found.limits) == (5, 6)
    assert found.tokens == {"rpm": 5, "tpm": 700 * 4 + 1500}
    assert 0 < found.fullest < 1


def test_an_acquire_that_no_user_counted(call):
    call()
    with call.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert call.check().problems == (
        "key on gpt: users counted 1 of rpm, the bucket 2",
        "gpt: users counted 1 of rpm, usage says 2",
    )


def test_more_than_a_limit_admits(call):
    call()
    for _ in range(100):
        call.entry("key", "gpt", {"rpm": 1}).granted()
    problems = call.check().problems
    assert any("101 of rpm in 0" in text and "at most 100." in text for text in problems), problems
