"""Other processes that hold the file, forks, and disks that are full."""

import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository

LIMIT = Limit.per_minute("rpm", 10)
TIMEOUT_S = 0.3
PATIENT_S = 30


@pytest.fixture
def repository(url):
    with SyncRepository.open(url=url, request_timeout=TIMEOUT_S) as repository:
        repository.set_system_defaults([LIMIT])
        yield repository


@pytest.fixture
def holder(start, repository, path):
    return held_by_another(start, path)


def held_by_another(start, path):
    child = start("holding_child.py", str(path))
    assert child.stdout.readline() == b"held\n"
    return child


def take(repository, **how):
    with SyncRateLimiter(repository).acquire("user", "api", {"rpm": 1}, **how) as lease:
        return lease.consumed


def test_a_process_that_holds_the_file_blocks_others_for_the_request_timeout_only(
    repository, holder
):
    with Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
        take(repository)
    assert watch.within(TIMEOUT_S)
    assert take(repository, on_unavailable="allow") == {}


def test_many_threads_wait_at_the_same_time_not_one_after_the_other(repository, holder):
    threads = [threading.Thread(target=_fail_quietly, args=[repository]) for _ in range(6)]
    with Stopwatch() as watch:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert watch.within(2 * TIMEOUT_S)


def test_a_stopped_process_that_goes_on_lets_all_others_go_on(repository, holder):
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(RateLimiterUnavailable):
        take(repository)
    holder.send_signal(signal.SIGCONT)
    holder.stdin.write(b"\n")
    holder.stdin.flush()
    holder.wait(5)
    assert take(repository) == {"rpm": 1}


def test_a_holder_that_dies_lets_all_others_go_on(repository, holder):
    holder.kill()
    holder.wait(5)
    assert take(repository) == {"rpm": 1}


def test_a_short_stall_only_delays(repository, url, start, path):
    with SyncRepository.open(url=url, request_timeout=PATIENT_S) as patient:
        threading.Timer(0.1, held_by_another(start, path).kill).start()
        assert take(patient) == {"rpm": 1}


def test_a_limiter_that_cannot_even_open_the_store_does_what_the_call_says(
    holder, url, monkeypatch
):
    monkeypatch.setenv("ZAEL_URL", url)
    with SyncRateLimiter() as limiter:
        with pytest.raises(RateLimiterUnavailable):
            limiter.acquire("user", "api", {"rpm": 1}).__enter__()
        with limiter.acquire("user", "api", {"rpm": 1}, on_unavailable="allow") as lease:
            assert lease.consumed == {}
        holder.kill()
        holder.wait(5)
        with limiter.acquire("user", "api", {"rpm": 1}) as lease:
            assert lease.consumed == {"rpm": 1}


def test_reading_does_not_wait_for_writers(repository, holder):
    assert repository.get_system_defaults() == ([LIMIT], None)


def test_a_full_disk_is_an_outage_and_not_a_bare_error(url):
    done = _run(
        f"""
        import resource, signal
        from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository

        repository = SyncRepository.open(url={url!r})
        limits = [Limit.per_minute("rpm", 10)]
        limiter = SyncRateLimiter(repository)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        refused = granted = 0
        for limit in (4096, hard):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            for number in range(3):
                try:
                    with limiter.acquire(f"user-{{number}}", "api", {{"rpm": 1}}, limits):
                        granted += 1
                except RateLimiterUnavailable:
                    refused += 1
        print(refused, granted, len(repository.get_resource_buckets("api")))
        """
    )
    assert done == "3 3 3\n"


@pytest.mark.parametrize("tree", ["sync", "async"])
def test_a_program_that_forgets_to_close_ends_all_the_same(url, tree):
    opening = {
        "sync": "repository = SyncRepository.open(url=URL)",
        "async": "repository = asyncio.run(use())",
    }
    done = _run(
        f"""
        import asyncio
        from zae_limiter import Limit, RateLimiter, Repository, SyncRepository
        URL = {url!r}

        async def use():
            repository = await Repository.open(url=URL)
            limits = [Limit.per_minute("rpm", 10)]
            async with RateLimiter(repository).acquire("user", "api", {{"rpm": 1}}, limits):
                return repository

        {opening[tree]}
        print("end")
        """
    )
    assert done == "end\n"


def _fail_quietly(repository):
    with pytest.raises(RateLimiterUnavailable):
        take(repository)


def _run(script):
    """What a program prints; it must end well and soon."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
