"""Ctrl-C in the sync tree: nothing is half done, and no lock of the file stays behind."""

import signal
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from zae_limiter_contract.signal_points import InterruptAt

from tests.integration.sqlite.faults import (
    Failure,
    HeldFile,
    Program,
    eventually,
    in_thread,
    is_free,
    is_open_to_others,
    sqlite_write_lock,
)
from zae_limiter import (
    Limit,
    RateLimiterUnavailable,
    RateLimitExceeded,
    SyncRateLimiter,
    SyncRepository,
)

CAPACITY = 100
ENOUGH = 5  # faults that are shown; each may cost a second


def taking(bench):
    with bench.limiter.acquire("user", "api", {"rpm": 10}) as lease:
        lease.adjust(rpm=-10)


def failing(bench):
    with bench.limiter.acquire("user", "api", {"rpm": 10}) as lease:
        lease.consume(rpm=5)
        raise Failure


def too_much(bench):
    with bench.limiter.acquire("user", "api", {"rpm": CAPACITY + 1}):
        pytest.fail("admitted")


def asking(bench):
    bench.limiter.available("user", "api")


def configuring(bench):
    bench.repo.set_limits("someone-else", [Limit.per_minute("rpm", 1)])


class Bench:
    """A store for one kind of interrupt; made anew after a fault, as it may hang."""

    def __init__(self, url, path, clock, timeout=1.0):
        self._url, self._path, self._clock, self._timeout = url, path, clock, timeout
        self.number = 0
        self.renew()

    def renew(self):
        self.number += 1
        self.path = self._path.with_name(f"{self.number}.db")
        url = self._url.replace(self._path.name, self.path.name)
        self.repo = SyncRepository.open(
            url=url, clock=self._clock, request_timeout=self._timeout, parallel_mode="serial"
        )
        self.limiter = SyncRateLimiter(self.repo)
        self.repo.set_system_defaults([Limit.per_minute("rpm", CAPACITY)])
        with self.limiter.acquire("user", "api", {"rpm": 0}):
            pass

    def harm(self):
        """What an interrupt has left behind; None if nothing."""
        if not eventually(lambda: is_open_to_others(self.path)):
            locks = [end for end in ("-gate", "-lock") if not is_free(self.path, end)]
            return f"other processes are locked out ({locks or 'SQLite lock'})"
        left = in_thread(lambda: self.limiter.available("user", "api")["rpm"])
        if left != CAPACITY:
            return f"another thread finds {left!r} in place of {CAPACITY} tokens"
        answer = in_thread(lambda: eventually(self.is_open_to_threads, 5.0))
        return None if answer is True else f"another thread gets no answer ({answer!r})"

    def is_open_to_threads(self):
        acquire = self.limiter.acquire("visitor", "api", {"rpm": 0})
        with suppress(RateLimiterUnavailable), acquire:
            return True
        return False


def faults(bench, action, *expected):
    """Interrupt at the first point, the second, … until there is no such point any more."""
    found = []
    for interrupt in map(InterruptAt, count(1)):
        with suppress(KeyboardInterrupt, *expected), interrupt:
            action(bench)
        if interrupt.struck is None or len(found) == ENOUGH:
            if not found:
                bench.repo.close()
            return found
        harm = bench.harm()
        if harm is not None:
            found.append(f"{interrupt.struck}: {harm}")
            bench.renew()
    raise AssertionError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("action", [taking, failing, too_much, asking, configuring])
def test_an_interrupt_at_any_point_leaves_no_lock_and_keeps_no_tokens(
    sqlite_url, path, clock, action
):
    bench = Bench(sqlite_url, path, clock)
    found = faults(bench, action, Failure, *([RateLimitExceeded] if action is too_much else []))
    assert not found, "\n".join(found)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", ["-gate", "-lock"])
def test_an_interrupt_at_any_point_of_waiting_for_another_process_leaves_no_lock(
    sqlite_url, path, clock, suffix
):
    def waiting(bench):
        with HeldFile(bench.path, suffix):
            taking(bench)

    bench = Bench(sqlite_url, path, clock, timeout=0.02)
    found = faults(bench, waiting, RateLimiterUnavailable)
    assert not found, "\n".join(found)


# --- a real Ctrl-C, in a process of its own

WAITS_ONCE = """
    import sys
    from zae_limiter import Limit, SyncRateLimiter, SyncRepository

    with SyncRepository.open(url=sys.argv[1], request_timeout=20) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults([Limit.per_day("rpd", 10)])
        print("ready")
        input()
        try:
            with limiter.acquire("user", "api", {"rpd": 1}):
                print("admitted")
        except KeyboardInterrupt:
            print("interrupted")
        input()
        with limiter.acquire("user", "api", {"rpd": 10}):
            print("all ten are there")
        input()
"""


@pytest.mark.usefixtures("in_background")
def test_ctrl_c_while_sqlite_waits_for_its_lock_leaves_the_file_unlocked(sqlite_url, path):
    with Program(WAITS_ONCE, sqlite_url) as program:
        program.says("ready")
        with sqlite_write_lock(path):
            program.go_on()
            # It holds the file lock as soon as it asks SQLite, which then waits in C.
            assert eventually(lambda: not is_free(path, "-lock"))
            assert not eventually(lambda: is_free(path, "-lock"), 0.05)
            program.interrupt(signal.SIGINT)
        program.says("interrupted")
        assert is_open_to_others(path)
        assert others_are_served(sqlite_url)
        program.go_on()
        program.says("all ten are there")
        assert others_are_served(sqlite_url)


@pytest.mark.usefixtures("in_background")
@pytest.mark.parametrize("suffix", ["-gate", "-lock"])
def test_ctrl_c_while_another_process_holds_the_file_lock_ends_the_wait_for_good(
    sqlite_url, path, suffix
):
    with Program(WAITS_ONCE, sqlite_url) as program:
        program.says("ready")
        with HeldFile(path, suffix):
            program.go_on()
            assert eventually(lambda: waits_for(path, suffix))
            program.interrupt(signal.SIGINT)
            program.says("interrupted")
        # The program does nothing now: it alone could give a lock back that it kept.
        assert eventually(lambda: is_open_to_others(path))
        assert others_are_served(sqlite_url)
        program.go_on()
        program.says("all ten are there")
        assert others_are_served(sqlite_url)


def others_are_served(url):
    """Whether a client that knows nothing of the interrupt gets its answer at once."""
    with SyncRepository.open(url=url, request_timeout=1) as repo:
        acquire = SyncRateLimiter(repo).acquire("another", "api", {"rpd": 1})
        with acquire:
            return True


def waits_for(path, suffix):
    """Whether the kernel has a process queued for a file lock."""
    inode = Path(f"{path}{suffix}").stat().st_ino
    waiting = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(row[1] == "->" and row[6].endswith(f":{inode}") for row in waiting)
