"""Another process, or another program, holds a lock of the file: calls wait, but not for ever."""

import asyncio
import threading
import time

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.sqlite.faults import (
    HeldFile,
    Program,
    descriptors,
    eventually,
    is_free,
    is_open_to_others,
    sqlite_write_lock,
    threads,
)
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.embedded.sqlite.file_lock import FileLock

SUFFIXES = ["-gate", "-lock"]
RPM = Limit.per_minute("rpm", 1000)

HOLDS = """
    import fcntl, os, sys

    fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
    print("held")
    input()
"""


def open_sync(url, timeout, **settings):
    repo = SyncRepository.open(url=url, request_timeout=timeout, **settings)
    repo.set_system_defaults([RPM])
    return repo


async def open_async(url, timeout, **settings):
    repo = await Repository.open(url=url, request_timeout=timeout, **settings)
    await repo.set_system_defaults([RPM])
    return repo


def take(limiter, **settings):
    with limiter.acquire("user", "api", {"rpm": 1}, **settings) as lease:
        return lease.consumed


async def take_async(limiter, **settings):
    async with limiter.acquire("user", "api", {"rpm": 1}, **settings) as lease:
        return lease.consumed


# --- how long a call waits


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_acquire_gives_up_after_the_request_timeout(sqlite_url, path, suffix):
    with open_sync(sqlite_url, 0.2) as repo, Program(HOLDS, f"{path}{suffix}") as holder:
        holder.says("held")
        with Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
            take(SyncRateLimiter(repo))
    assert watch.seconds > 0.19
    assert watch.within(0.2)


@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_a_task_gives_up_after_the_request_timeout(sqlite_url, path, suffix):
    async with await open_async(sqlite_url, 0.2) as repo:
        held = HeldFile(path, suffix)
        with held, Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
            await take_async(RateLimiter(repo))
    assert watch.seconds > 0.19
    assert watch.within(0.2)


async def test_many_tasks_give_up_together(sqlite_url, path):
    """Also with a timeout so short that SQLite's own is of the same size."""
    async with await open_async(sqlite_url, 0.05) as repo:
        limiter = RateLimiter(repo)
        with sqlite_write_lock(path), Stopwatch() as watch:
            results = await asyncio.gather(
                *(take_async(limiter) for _ in range(40)), return_exceptions=True
            )
    assert watch.within(0.05)
    assert {type(each) for each in results} == {RateLimiterUnavailable}


# --- what is left of those who gave up


def takes(limiter):
    try:
        return take(limiter) == {"rpm": 1}
    except RateLimiterUnavailable:
        return False


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_waiting_in_vain_again_and_again_leaves_no_threads_and_no_files(sqlite_url, path, suffix):
    with open_sync(sqlite_url, 0.005) as repo:
        limiter = SyncRateLimiter(repo)
        take(limiter)
        with HeldFile(path, suffix):
            before, files = threads(), descriptors()
            for _ in range(200):  # changes wait each time, acquires only until the breaker opens
                with pytest.raises(RateLimiterUnavailable):
                    repo.delete_limits("user")
            assert threads() <= before + 2
            assert descriptors() <= files + 2
        assert eventually(lambda: is_open_to_others(path))
        # With 5 ms for each, a call on a busy machine may come too late again.
        assert eventually(lambda: takes(limiter), 5.0)
        assert eventually(lambda: threads() <= before)
        assert is_open_to_others(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_tasks_that_wait_in_vain_leave_no_threads_and_no_files(sqlite_url, path, suffix):
    async with await open_async(sqlite_url, 0.1) as repo:
        limiter = RateLimiter(repo)
        await take_async(limiter)
        with HeldFile(path, suffix):
            before, files = threads(), descriptors()
            for _ in range(8):
                calls = [repo.delete_limits("user") for _ in range(25)]
                outcomes = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(each) for each in outcomes} == {RateLimiterUnavailable}
            assert threads() <= before + 2
            assert descriptors() <= files + 2
        assert eventually(lambda: is_open_to_others(path))
        assert await take_async(limiter) == {"rpm": 1}
        assert is_open_to_others(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_client_that_gave_up_does_not_stand_in_the_way_of_others(sqlite_url, path, suffix):
    with open_sync(sqlite_url, 0.5) as first, open_sync(sqlite_url, 5) as second:
        with HeldFile(path, suffix), pytest.raises(RateLimiterUnavailable):
            take(SyncRateLimiter(first))
        # The first one is idle from here on.
        assert take(SyncRateLimiter(second)) == {"rpm": 1}
        assert take(SyncRateLimiter(second)) == {"rpm": 1}
        assert take(SyncRateLimiter(first)) == {"rpm": 1}


@pytest.mark.parametrize("suffix", SUFFIXES)
async def test_a_cancelled_wait_does_not_keep_the_lock(sqlite_url, path, suffix):
    async with await open_async(sqlite_url, 0.5) as repo:
        limiter = RateLimiter(repo)
        with HeldFile(path, suffix) as held:
            task = asyncio.create_task(take_async(limiter))
            await asyncio.sleep(0.05)
            task.cancel()
            held.free()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert eventually(lambda: is_open_to_others(path))
        assert (await limiter.available("user", "api")) == {"rpm": 1000}


def test_a_repository_closed_while_another_process_holds_the_lock_lets_go_of_it(sqlite_url, path):
    files = descriptors()
    repo = open_sync(sqlite_url, 0.01)
    with HeldFile(path):
        assert take(SyncRateLimiter(repo), on_unavailable="allow") == {}
        repo.close()
    assert eventually(lambda: is_free(path, "-lock"))
    assert eventually(lambda: descriptors() <= files)


def test_opening_in_vain_again_and_again_leaves_no_threads_and_no_files(sqlite_url, path):
    open_sync(sqlite_url, 1).close()
    before, files = threads(), descriptors()
    with HeldFile(path):
        for _ in range(20):
            with pytest.raises(RateLimiterUnavailable):
                SyncRepository.open(url=sqlite_url, request_timeout=0.01)
    assert eventually(lambda: threads() <= before)
    assert eventually(lambda: descriptors() <= files)
    assert eventually(lambda: is_open_to_others(path))


async def test_a_cancelled_opening_leaves_no_files(sqlite_url, path):
    await (await open_async(sqlite_url, 1)).close()
    files = descriptors()
    with HeldFile(path):
        for _ in range(5):
            opening = asyncio.create_task(Repository.open(url=sqlite_url))
            await asyncio.sleep(0.01)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
    await asyncio.get_running_loop().shutdown_default_executor()  # its threads have ended
    assert eventually(lambda: descriptors() <= files)
    assert is_open_to_others(path)


# --- the moment at which a request is judged


def test_an_acquire_that_waited_for_the_lock_finds_what_accrued_meanwhile(sqlite_url, path):
    with SyncRepository.open(url=sqlite_url) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults([Limit.per_second("rps", 20)])
        with limiter.acquire("user", "api", {"rps": 20}):
            pass
        with HeldFile(path) as held:
            timer = held.free_in(0.35)
            with limiter.acquire("user", "api", {"rps": 6}):
                pass
            timer.join()


async def test_a_task_that_waited_for_the_lock_finds_what_accrued_meanwhile(sqlite_url, path):
    async with await Repository.open(url=sqlite_url) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([Limit.per_second("rps", 20)])
        async with limiter.acquire("user", "api", {"rps": 20}):
            pass
        with HeldFile(path) as held:
            timer = held.free_in(0.35)
            async with limiter.acquire("user", "api", {"rps": 6}):
                pass
            timer.join()


# --- one deadline for an acquire, whatever it has to wait for


TIMEOUT_S = 1.5
HELD_S = 1.2  # of it, before the first charge of an acquire


class HeldAgain:
    """Holds the file's lock, frees it for the first charge of an acquire, and takes it back.

    Also the clock of that acquire: it is read before the charge, in the charge, and then for the
    refresh. The last one waits until the lock is held again.
    """

    def __init__(self, path):
        self._path = path
        self._held, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)
        self._readings = None

    def __call__(self):
        if self._readings is not None:
            self._readings += 1
            if self._readings == 3:
                assert self._held.wait(10)
        return time.time_ns() // 1_000_000

    def __enter__(self):
        self._lock = FileLock(str(self._path))
        assert self._lock.acquire(time.monotonic() + 1)
        self._readings = 0
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        self._lock.close()

    def _hold(self):
        self._end.wait(HELD_S)
        self._lock.release()
        self._lock.acquire(time.monotonic() + 60)  # its gate: the acquire that waits is next
        self._held.set()
        self._end.wait(60)
        self._lock.release()


def change_limits(url):
    """As another process: the next acquire finds a bucket that has seen newer limits."""
    with SyncRepository.open(url=url) as other:
        other.set_system_defaults([Limit.per_minute("rpm", 500)])
        take(SyncRateLimiter(other))


def test_an_acquire_after_a_refresh_waits_for_the_request_timeout_once(sqlite_url, path):
    holder = HeldAgain(path)
    with open_sync(sqlite_url, TIMEOUT_S, clock=holder) as repo:
        limiter = SyncRateLimiter(repo)
        take(limiter)
        change_limits(sqlite_url)
        with holder:
            with Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
                take(limiter)
            assert watch.within(TIMEOUT_S + 0.3), watch


async def test_a_task_after_a_refresh_waits_for_the_request_timeout_once(sqlite_url, path):
    holder = HeldAgain(path)
    async with await open_async(sqlite_url, TIMEOUT_S, clock=holder) as repo:
        limiter = RateLimiter(repo)
        await take_async(limiter)
        await asyncio.to_thread(change_limits, sqlite_url)
        with holder:
            with Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
                await take_async(limiter)
            assert watch.within(TIMEOUT_S + 0.3), watch
