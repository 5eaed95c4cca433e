"""What users bring (log handlers, filters, hooks, clocks) may raise: no duty ends because of it."""

import asyncio
import gc
import logging
import sqlite3
import threading
import time
from types import SimpleNamespace

import pytest

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository, llm
from zae_limiter._async.tally_keeper import TallyKeeper
from zae_limiter.admission.request import AcquireEnd
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.alarm import Alarm
from zae_limiter.tallies import NotedTallies
from zae_limiter.testing import FakeClock, outage
from zae_limiter.web.rules import WebOutcome, WebRule

PATIENCE_S = 20.0
LEASE_TTL = 3
LOG_MB = 3  # above the limit that the test sets


class UserError(Exception):
    """What a callback of the user's raises."""


class FailingHandler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)
        raise UserError


class MoodyClock(FakeClock):
    """Raises while it is told to."""

    fails = False
    failures = 0

    def __call__(self):
        if self.fails:
            self.failures += 1
            raise UserError
        return super().__call__()


@pytest.fixture
def failing_handler():
    handler, logger = FailingHandler(), logging.getLogger("zae_limiter")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def until(condition):
    ends_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_s, "it never happened"
        time.sleep(0.01)


def test_a_logger_never_raises_and_names_the_line_that_logs(failing_handler):
    quiet_logger("zae_limiter.x").warning("%d of %d", 1, 2)
    try:
        raise ValueError
    except ValueError:
        quiet_logger("zae_limiter.x").exception("failed")
    first, second = failing_handler.records
    assert (first.getMessage(), first.filename, first.funcName) == (
        "1 of 2",
        "test_background_duties.py",
        "test_a_logger_never_raises_and_names_the_line_that_logs",
    )
    assert second.exc_info[0] is ValueError


def test_a_filter_that_raises_is_ignored():
    logger = logging.getLogger("zae_limiter.filtered")

    def refuse(_):
        raise UserError

    logger.addFilter(refuse)
    quiet_logger("zae_limiter.filtered").error("told")
    logger.removeFilter(refuse)


@pytest.mark.parametrize("error", [UserError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_alarm_rings_again_after_a_call_that_has_raised(error, failing_handler):
    rung = []

    def ring():
        rung.append(threading.current_thread())
        alarm.set(0.001)
        raise error

    alarm = Alarm(ring)
    alarm.set(0)
    until(lambda: len(rung) >= 3)
    alarm.stop()
    assert len(set(rung)) == 1


def test_slots_are_renewed_after_the_clock_has_raised():
    clock = MoodyClock()
    clock.set(clock() // 1000 * 1000)
    with SyncRepository.open(url="memory://", clock=clock) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults([Limit.concurrent("slots", 1, lease_ttl=LEASE_TTL)])
        with limiter.acquire("user", "api", {}) as lease:
            clock.fails = True
            until(lambda: clock.failures >= 2)  # rings come in real time
            clock.fails = False
            clock.advance(ms=1500)
            charging = repo.charging

            def is_renewed():
                image = charging.buckets.get(charging.namespace_id, "user", "api", clock)
                return max(image.holds["slots"]) >= clock() + 2000

            until(is_renewed)
            assert not lease.lost
        assert limiter.available("user", "api") == {"slots": 1}


async def test_slots_are_renewed_in_a_task_after_the_clock_has_raised():
    clock = MoodyClock()
    clock.set(clock() // 1000 * 1000)
    async with Repository.open(url="memory://", clock=clock) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([Limit.concurrent("slots", 1, lease_ttl=LEASE_TTL)])
        async with limiter.acquire("user", "api", {}) as lease:
            clock.fails = True
            await asyncio.to_thread(until, lambda: clock.failures >= 2)
            clock.fails = False
            clock.advance(ms=1500)
            charging, ends_s, expires_ms = repo.charging, time.monotonic() + PATIENCE_S, 0
            while expires_ms < clock() + 2000:
                assert time.monotonic() < ends_s
                await asyncio.sleep(0.01)
                image = await charging.buckets.get(charging.namespace_id, "user", "api", clock)
                expires_ms = max(image.holds["slots"])
            assert not lease.lost


async def test_a_batch_of_sqlite_is_charged_once_if_a_log_handler_raises(tmp_path, failing_handler):
    """The write-ahead log is warned about after the commit: a second run would charge twice."""
    url, callers = f"sqlite:///{tmp_path}/limits.db?wal_limit_mb=1", 600
    async with Repository.open(url=url) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([Limit.per_day("calls", 10_000_000)])
        reader = sqlite3.connect(tmp_path / "limits.db")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # holds the log as it is
        filler = sqlite3.connect(tmp_path / "limits.db", timeout=20)
        filler.execute("CREATE TABLE filler (x)")
        for _ in range(LOG_MB):
            filler.execute("INSERT INTO filler VALUES (zeroblob(1048576))")
            filler.commit()

        async def call():
            async with limiter.acquire("user", "api", {"calls": 1}):
                pass

        await asyncio.gather(*[call() for _ in range(callers)])
        reader.close()
        filler.close()
        warned = [
            each for each in failing_handler.records if "write-ahead log" in each.getMessage()
        ]
        assert warned
        bucket = await repo.get_bucket("user", "api", "calls")
        assert bucket.total_consumed_milli == 1000 * callers


async def test_a_log_handler_that_raises_does_not_hide_the_error_of_a_provider(failing_handler):
    async with Repository.open(url="memory://") as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)])
        refused = UserError("the provider refuses the call")
        refused.status_code = 429
        refused.response = SimpleNamespace(headers={"retry-after": "30"})
        reservation = llm.reserve(limiter, "user", "gpt", estimate=10)
        await reservation.__aenter__()
        with outage(limiter):  # so the bucket cannot be paused, which is logged
            await reservation.__aexit__(UserError, refused, None)
    assert [each for each in failing_handler.records if "could not be paused" in each.msg]


async def test_a_log_handler_that_raises_does_not_fail_a_request(failing_handler):
    def cost_after(request, outcome):
        raise UserError

    rule, outcome = WebRule(cost_after=cost_after), WebOutcome(200, 5, True)
    rule.settle("a lease", "a request", outcome)
    await rule.settle_async("a lease", "a request", outcome)
    assert len(failing_handler.records) == 2


async def test_counts_are_stored_after_a_log_handler_has_raised(failing_handler):
    stored, lost, is_stored = [], [], asyncio.Event()

    async def store(due):
        if not failing_handler.records:
            raise UserError
        stored.extend([noted.take(bucket) for bucket in due])
        is_stored.set()

    noted = NotedTallies(after_s=0.01)
    keeper = TallyKeeper(noted, store)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
    keeper.count("n", AcquireEnd("api", (("user", None),), (), True, lambda: 0))
    async with asyncio.timeout(PATIENCE_S):
        await is_stored.wait()
    keeper.close()
    gc.collect()  # a task that has raised tells so when it is gone
    await asyncio.sleep(0)
    assert [each.total().waited for each in stored] == [1]
    assert lost == []
