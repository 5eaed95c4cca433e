"""A kernel that has no file lock to give (ENOLCK), for a moment or for long."""

import asyncio
import errno
import fcntl

import pytest

from tests.integration.sqlite.faults import HeldFile, is_open_to_others
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

RPM = [Limit.per_minute("rpm", 10)]
USER = ("user", "api", {"rpm": 1})
TIMEOUT = 1.0  # long enough for a busy machine to open a store


class Kernel:
    """Refuses so many calls of one kind, then works."""

    def __init__(self, monkeypatch):
        self.refusals, self.kind = 0, 0
        self._flock = fcntl.flock
        monkeypatch.setattr(fcntl, "flock", self)

    def __call__(self, file, operation):
        if self.refusals and operation == self.kind:
            self.refusals -= 1
            raise OSError(errno.ENOLCK, "No locks available")
        return self._flock(file, operation)

    def refuse(self, kind, times):
        self.kind, self.refusals = kind, times


@pytest.fixture
def kernel(monkeypatch):
    return Kernel(monkeypatch)


@pytest.fixture(params=["sync", "async"])
def take(request, sqlite_url, clock):
    """Charge one token; answers what is left."""
    if request.param == "sync":
        with SyncRepository.open(
            url=sqlite_url, clock=clock, request_timeout=TIMEOUT
        ) as repository:
            repository.set_system_defaults(RPM)
            limiter = SyncRateLimiter(repository)

            def take_one(**how):
                with limiter.acquire(*USER, **how) as lease:
                    return lease.consumed

            yield take_one
        return
    with asyncio.Runner() as runner:
        opening = Repository.open(url=sqlite_url, clock=clock, request_timeout=TIMEOUT)
        repository = runner.run(opening)
        runner.run(repository.set_system_defaults(RPM))
        limiter = RateLimiter(repository)

        async def take_async(**how):
            async with limiter.acquire(*USER, **how) as lease:
                return lease.consumed

        yield lambda **how: runner.run(take_async(**how))
        runner.run(repository.close())


TRY, WAIT, UNLOCK = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX, fcntl.LOCK_UN


@pytest.mark.parametrize("kind", [TRY, UNLOCK], ids=["taking", "giving back"])
def test_a_lock_that_is_refused_once_is_taken_again(take, kernel, path, kind):
    kernel.refuse(kind, 1)
    assert take() == {"rpm": 1}
    assert take() == {"rpm": 1}
    assert is_open_to_others(path)


def test_a_lock_that_is_refused_while_waiting_for_another_process_is_asked_for_again(
    take, kernel, path
):
    with HeldFile(path) as held:
        kernel.refuse(WAIT, 1)
        held.free_in(0.05)
        assert take() == {"rpm": 1}
    assert is_open_to_others(path)


@pytest.mark.each_value_once
@pytest.mark.parametrize("kind", [TRY, WAIT], ids=["taking", "waiting"])
def test_locks_that_are_refused_for_long_are_an_outage_that_ends(take, kernel, path, kind):
    held = HeldFile(path)
    if kind == TRY:
        held.free()
    with held:
        kernel.refuse(kind, 10**6)
        with pytest.raises(RateLimiterUnavailable, match=r"No locks available|another process"):
            take()
        assert take(on_unavailable="allow") == {}
    kernel.refuse(kind, 0)
    assert take() == {"rpm": 1}
    assert is_open_to_others(path)
