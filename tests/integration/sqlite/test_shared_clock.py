"""All processes of a machine stamp with one time, whatever is done to the host's clock."""

import random
import sqlite3

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.clock import SharedClock
from zae_limiter.embedded.sqlite.schema import MIGRATIONS

SECOND_NS = 1_000_000_000
TICK_NS = SECOND_NS // 2
# Steps of the wall clock and the seconds that pass after each: 5 until one is believed, 3 until the
# correction begins, and for the last one 20 at half speed.
STEPS = [(0, 3), (1.5, 8), (-1.5, 8), (3600, 14), (-10, 40)]


class Machine:
    """A boot clock that moves on, a wall clock that can be set, and processes that see both."""

    def __init__(self, start, url):
        self._start, self._url = start, url
        self._chance = random.Random(1)
        self.boot_ns, self.wall_off_ns = 10**15, 1_800_000_000 * SECOND_NS - 10**15
        self.children = []
        self.latest_ms = 0

    def add_process(self):
        child = self._start("clock_child.py", self._url)
        self.children.append(child)
        self._say(child)
        self._check([self._hear(child)])

    def live(self, seconds):
        """Some of the processes charge at any moment; all of them say the same time."""
        for _ in range(round(seconds * SECOND_NS / TICK_NS)):
            self.boot_ns += TICK_NS
            active = self._chance.sample(self.children, self._chance.randint(1, len(self.children)))
            for child in active:
                self._say(child)
            self._check([self._hear(child) for child in active])

    def off_s(self):
        return self.latest_ms / 1000 - (self.boot_ns + self.wall_off_ns) / SECOND_NS

    def _check(self, times_ms):
        assert len(set(times_ms)) == 1, "processes are apart"
        assert times_ms[0] >= self.latest_ms, "a stamp went back"
        self.latest_ms = times_ms[0]

    def _say(self, child):
        child.stdin.write(f"{self.boot_ns} {self.boot_ns + self.wall_off_ns}\n".encode())
        child.stdin.flush()

    def _hear(self, child):
        return int(child.stdout.readline())


@pytest.mark.parametrize("per_step", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_processes_that_start_before_and_after_steps_of_the_host_s_clock_agree(
    start, sqlite_url, per_step
):
    machine = Machine(start, sqlite_url)
    for step_s, seconds in STEPS:
        machine.wall_off_ns += round(step_s * SECOND_NS)
        for _ in range(per_step):
            machine.add_process()
        machine.live(seconds)
        assert abs(machine.off_s()) <= 2


@pytest.fixture
def host():
    return Host()


class Host:
    boot_ns, wall_off_ns = 10**15, 1_800_000_000 * SECOND_NS - 10**15

    def clock(self):
        return SharedClock(lambda: self.boot_ns + self.wall_off_ns, lambda: self.boot_ns)

    def open(self, url):
        return SyncRepository.open(url=url, clock=self.clock())


def charged_until_refused(repository):
    limiter = SyncRateLimiter(repository)
    limits = [Limit.per_second("rps", 100)]
    admitted = 0
    while limiter.available("user", "api", limits=limits)["rps"] > 0:
        with limiter.acquire("user", "api", {"rps": 1}, limits=limits):
            admitted += 1
    return admitted


def test_a_step_between_two_opens_hands_out_nothing(host, sqlite_url):
    with host.open(sqlite_url) as first:
        assert charged_until_refused(first) == 100
        host.wall_off_ns += 3 * SECOND_NS // 2
        with host.open(sqlite_url) as second:
            assert charged_until_refused(second) == 0


def test_a_step_that_is_taken_back_changes_nothing(host, sqlite_url):
    with host.open(sqlite_url) as repository:
        charged_until_refused(repository)
        for step in (3600, -3600, 0):
            off_ns, host.wall_off_ns = host.wall_off_ns, host.wall_off_ns + step * SECOND_NS
            for _ in range(4):
                host.boot_ns += SECOND_NS
                assert charged_until_refused(repository) == 100
            host.wall_off_ns = off_ns


def test_a_file_of_the_first_schema_gets_the_row(host, path, sqlite_url):
    with sqlite3.connect(path) as file:
        for statement in filter(str.strip, MIGRATIONS[0].split(";")):
            file.execute(statement)
        file.execute("PRAGMA application_id = 0x5A41454C")
        file.execute("PRAGMA user_version = 1")
    file.close()
    with host.open(sqlite_url) as repository:
        assert charged_until_refused(repository) == 100
    assert offsets(path) == [host.wall_off_ns]


def test_rows_of_earlier_boots_are_deleted_and_not_believed(host, path, sqlite_url):
    host.open(sqlite_url).close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE clock SET machine = 'earlier/1', offset_ns = 7")
    file.close()
    host.open(sqlite_url).close()
    assert offsets(path) == [host.wall_off_ns]


def offsets(path):
    with sqlite3.connect(path) as file:
        rows = file.execute("SELECT offset_ns FROM clock").fetchall()
    file.close()
    return [row[0] for row in rows]
