"""A file that cannot be opened, locked or read: what calls answer, and in which time."""

import asyncio
import gc
import resource
from contextlib import contextmanager

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.sqlite.faults import HeldFile, Program, eventually
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

RPM = [Limit.per_minute("rpm", 10)]


@pytest.fixture
def repo(sqlite_url, clock):
    with SyncRepository.open(url=sqlite_url, clock=clock, request_timeout=0.25) as repository:
        repository.set_system_defaults(RPM)
        yield repository


# --- a repository that is opened on first use


@pytest.fixture
def default_store(repo, sqlite_url, monkeypatch):
    """The store that a limiter without a repository opens."""
    monkeypatch.setenv("ZAEL_URL", sqlite_url)


@contextmanager
def no_file_can_be_opened():
    """As in a process that has used up its file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def allowing(kind):
    """A limiter and the keywords of its calls, told to allow in one way or the other."""
    if kind == "by the call":
        return SyncRateLimiter(), {"on_unavailable": "allow"}
    with pytest.warns(DeprecationWarning, match="on_unavailable"):
        return SyncRateLimiter(on_unavailable="allow"), {}


@pytest.mark.parametrize("kind", ["by the call", "by the limiter"])
def test_a_store_that_cannot_be_opened_is_an_outage_like_any_other(default_store, kind):
    limiter, settings = allowing(kind)
    acquire = limiter.acquire("user", "api", {"rpm": 1}, **settings)
    with no_file_can_be_opened(), acquire as lease:
        lease.adjust(rpm=3)
        assert lease.consumed == {}


def test_more_tokens_are_allowed_while_the_store_cannot_be_opened(default_store):
    limiter, settings = allowing("by the call")
    acquire = limiter.acquire("user", "api", {"rpm": 1}, **settings)
    with no_file_can_be_opened(), acquire as lease:
        lease.consume(rpm=1)
        lease.release(rpm=1)
        assert lease.consumed == {}


def test_a_store_that_could_not_be_opened_is_opened_by_the_next_call(default_store):
    limiter, settings = allowing("by the call")
    with no_file_can_be_opened(), limiter.acquire("user", "api", {"rpm": 1}, **settings):
        pass
    with limiter, limiter.acquire("user", "api", {"rpm": 1}) as lease:
        assert lease.consumed == {"rpm": 1}


def test_a_store_that_cannot_be_opened_refuses_calls_that_block(default_store):
    limiter = SyncRateLimiter()
    with no_file_can_be_opened(), pytest.raises(RateLimiterUnavailable) as refused:
        limiter.acquire("user", "api", {"rpm": 1}).__enter__()
    assert (refused.value.entity_id, refused.value.resource) == ("user", "api")


async def test_a_store_whose_lock_is_held_while_it_is_opened_is_an_outage(default_store, path):
    with HeldFile(path):
        acquire = RateLimiter().acquire("user", "api", {"rpm": 1}, on_unavailable="allow")
        async with acquire as lease:
            assert lease.consumed == {}


# --- is_available


@pytest.mark.parametrize("suffix", ["-gate", "-lock"])
def test_asking_whether_the_store_is_available_takes_no_longer_than_told(
    default_store, path, suffix
):
    with SyncRateLimiter() as limiter:
        with HeldFile(path, suffix), Stopwatch() as watch:
            assert limiter.is_available(0.2) is False
        assert watch.within(0.2)
        assert eventually(lambda: limiter.repository is not None)  # its thread goes on
        assert limiter.is_available(5) is True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_task_that_asks_whether_the_store_is_available_waits_no_longer_than_told(
    default_store, path
):
    async with RateLimiter() as limiter:
        with HeldFile(path), Stopwatch() as watch:
            assert await limiter.is_available(0.2) is False
        assert watch.within(0.2)
        assert await limiter.is_available(5) is True
    await asyncio.get_running_loop().shutdown_default_executor()
    gc.collect()


LOCKS_READERS_OUT = """
    import fcntl, os, sys

    # The bytes of the shared memory by which SQLite orders writers, recovery and readers.
    fcntl.lockf(os.open(sys.argv[1] + "-shm", os.O_RDWR), fcntl.LOCK_EX, 8, 120)
    print("held")
    input()
"""


def test_a_store_that_cannot_be_read_is_found_out_in_time(sqlite_url, path):
    with SyncRepository.open(url=sqlite_url) as repo, Program(LOCKS_READERS_OUT, path) as other:
        other.says("held")
        with Stopwatch() as watch:
            assert SyncRateLimiter(repo).is_available(0.2) is False
        assert watch.within(0.2)


async def test_a_store_that_cannot_be_read_is_found_out_in_time_by_a_task(sqlite_url, path):
    async with await Repository.open(url=sqlite_url) as repo:
        with Program(LOCKS_READERS_OUT, path) as other:
            other.says("held")
            with Stopwatch() as watch:
                assert await RateLimiter(repo).is_available(0.2) is False
            assert watch.within(0.2)
