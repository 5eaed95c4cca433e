"""The write-ahead log stays below its limit while the file is read all the time."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ValidationError

RPM = [Limit.per_minute("rpm", 10**6)]
MB = 1_000_000


def log_size(path):
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def fill(repository, count):
    limiter = SyncRateLimiter(repository)
    for number in range(count):
        with limiter.acquire(f"user-{number}", "api", {"rpm": 1}):
            pass


class Readers:
    """Threads that list all buckets again and again, so that one of them always reads."""

    def __init__(self, url, clock, count):
        self._url, self._clock = url, clock
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._read) for _ in range(count)]

    def _read(self):
        with SyncRepository.open(url=self._url, clock=self._clock) as repository:
            while not self._end.is_set():
                repository.get_resource_buckets("api")

    def __enter__(self):
        for thread in self._threads:
            thread.start()

    def __exit__(self, *exc_info):
        self._end.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_the_log_is_bounded_while_others_list(path, sqlite_url, clock, seconds):
    limit_mb = 4 if seconds < 60 else 64
    url = f"{sqlite_url}&wal_limit_mb={limit_mb}"
    with SyncRepository.open(url=url, clock=clock) as repository:
        repository.set_system_defaults(RPM)
        fill(repository, 1000)
        largest, until = 0, time.monotonic() + seconds
        with Readers(url, clock, 3):
            while time.monotonic() < until:
                fill(repository, 100)
                largest = max(largest, log_size(path))
    assert 0 < largest <= limit_mb * MB


@pytest.mark.real_time
def test_a_foreign_program_that_reads_for_long_delays_acquires_hardly_and_the_log_shrinks_after_it(
    path, sqlite_url, clock
):
    with SyncRepository.open(url=f"{sqlite_url}&wal_limit_mb=1", clock=clock) as repository:
        repository.set_system_defaults(RPM)
        fill(repository, 10)
        with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
            foreign.execute("BEGIN")
            foreign.execute("SELECT count(*) FROM bucket").fetchone()
            longest = 0.0
            with Stopwatch() as watch:
                while log_size(path) < 2 * MB:
                    began = time.monotonic()
                    fill(repository, 1)
                    longest = max(longest, time.monotonic() - began)
            foreign.execute("COMMIT")
        deadline = time.monotonic() + 10
        while log_size(path) > MB and time.monotonic() < deadline:
            fill(repository, 10)
    assert log_size(path) <= MB
    assert longest < 0.5 + watch.late_s  # 30 ms of waiting, and what a slow disk adds


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", ""])
def test_a_bad_limit_is_refused(sqlite_url, limit):
    with pytest.raises(ValidationError, match="wal_limit_mb"):
        SyncRepository.open(url=f"{sqlite_url}&wal_limit_mb={limit}")
