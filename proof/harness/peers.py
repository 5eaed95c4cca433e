"""Random callers of other limiters, for the one operation that they have: an acquire of a limit.

Each has the limit that its own algorithm can hold, and is compared with that. Settings are those
that its documentation names for several processes, and among them those that do best here.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from random import Random
from typing import Any

from proof.harness.diary import Diary, now_ns
from proof.harness.plan import LIMITS_REDIS, PYRATE_SQLITE, THROTTLED_REDIS, Plan

RATE = 40
KEYS = tuple(f"plain-{number}" for number in range(3))
SECOND_NS = 1_000_000_000
PAUSE_S = 0.004
CLOCKS_EVERY_S = 0.25
TRIED_EVERY_S = 0.1
# A window of a second admits its whole amount at once; a bucket holds a burst.
CAPACITIES = {LIMITS_REDIS: RATE, THROTTLED_REDIS: 20, PYRATE_SQLITE: RATE}

# As the package's own thread that removes what is outside of the window.
LEAKS_EVERY_S = 10.0
# How often a process asks for a file lock that another one holds: a twentieth of a second, which is
# the default of filelock, is longer than a call.
ASKS_EVERY_S = 0.002

Take = Callable[[str, int], Awaitable[bool]]


def tell_terms(plan: Plan, diary: Diary) -> None:
    """Note the limit that the peer is asked to keep."""
    for key in KEYS:
        diary.tell(
            "limit",
            series=f"{key}/rpm",
            capacity=CAPACITIES[plan.subject],
            refill=RATE,
            period_ns=SECOND_NS,
            is_greedy=plan.subject == THROTTLED_REDIS,  # windows refill at once, not steadily
        )


async def run(plan: Plan, diary: Diary, say: Callable[[str], None], orders: Any) -> None:
    """Run the callers of one process."""
    stopped = asyncio.Event()
    async with AsyncExitStack() as stack:
        take = await _opened(plan, stack, say)
        say("ready")
        await orders(stopped.set)
        ends = time.monotonic() + plan.seconds
        async with asyncio.TaskGroup() as group:
            for task in range(plan.tasks):
                chance = Random(f"{plan.seed}.{diary.process}.{task}")
                group.create_task(_call(take, diary, chance, stopped, ends))
            group.create_task(_clocks(diary, stopped, ends))
    diary.tell("closed", lost=0)


async def _opened(plan: Plan, stack: AsyncExitStack, say: Callable[[str], None]) -> Take:
    """Open the store; if the process has no right to write to it, try until it has."""
    was_refused = False
    while True:
        try:
            return await _OPENERS[plan.subject](plan.url, stack)
        except (PermissionError, sqlite3.OperationalError):
            if not was_refused:
                say("refused")
            was_refused = True
            await asyncio.sleep(TRIED_EVERY_S)


async def _call(
    take: Take, diary: Diary, chance: Random, stopped: asyncio.Event, ends: float
) -> None:
    while time.monotonic() < ends and not stopped.is_set():
        key, amount = chance.choice(KEYS), chance.randint(1, 5)
        number = diary.begin("acquire", {f"{key}/rpm": amount})
        try:
            outcome = "admitted" if await take(key, amount) else "rejected"
        except Exception:  # noqa: BLE001 - each has errors of its own for a store that fails
            outcome = "unknown"
        diary.end(number, outcome)
        await asyncio.sleep(chance.random() * PAUSE_S)


async def _clocks(diary: Diary, stopped: asyncio.Event, ends: float) -> None:
    while time.monotonic() < ends and not stopped.is_set():
        at = now_ns()
        diary.tell("clock", at=at, host=time.time_ns() - at, limiter=None)
        await asyncio.sleep(CLOCKS_EVERY_S)


def _retries() -> Any:
    """Return the retries that a client of redis-py has by default, unless it is made from a URL."""
    from redis.asyncio import Redis

    return Redis().get_retry()


async def _limits(url: str, stack: AsyncExitStack) -> Take:
    from limits import RateLimitItemPerSecond
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import SlidingWindowCounterRateLimiter

    item = RateLimitItemPerSecond(RATE)
    # The moving window of this package takes the time of the host, this counter that of Redis.
    limiter = SlidingWindowCounterRateLimiter(
        RedisStorage(f"async+{url}", implementation="redispy", retry=_retries())
    )

    async def take(key: str, amount: int) -> bool:
        return await limiter.hit(item, key, cost=amount)

    return take


async def _throttled(url: str, stack: AsyncExitStack) -> Take:
    import throttled
    from throttled import asyncio as aio

    limiter = aio.Throttled(
        using=throttled.RateLimiterType.GCRA.value,
        quota=throttled.per_sec(RATE, burst=CAPACITIES[THROTTLED_REDIS]),
        store=aio.RedisStore(server=url, options={"CONNECTION_POOL_KWARGS": {"retry": _retries()}}),
        key_prefix="rpm",
    )

    async def take(key: str, amount: int) -> bool:
        return not (await limiter.limit(key, amount)).limited

    return take


async def _pyrate(url: str, stack: AsyncExitStack) -> Take:
    from pyrate_limiter import Duration, Rate, RateItem, SQLiteBucket

    path = url.removeprefix("sqlite:///")
    _check_writable(path)
    buckets = {
        key: SQLiteBucket.init_from_file(
            [Rate(RATE, Duration.SECOND)],
            table=key.replace("-", "_"),
            db_path=path,
            use_file_lock=True,
        )
        for key in KEYS
    }
    for bucket in buckets.values():
        stack.callback(bucket.close)
    leaks_at = dict.fromkeys(KEYS, time.monotonic() + LEAKS_EVERY_S)

    def put(key: str, amount: int) -> bool:
        # As Limiter.try_acquire(blocking=False), which newer versions of filelock refuse.
        bucket = buckets[key]
        lock: Any = bucket.lock
        with lock.acquire(poll_interval=ASKS_EVERY_S):
            if time.monotonic() >= leaks_at[key]:
                leaks_at[key] = time.monotonic() + LEAKS_EVERY_S
                bucket.leak(bucket.now())
            return bool(bucket.put(RateItem(key, bucket.now(), weight=amount)))

    # Its lock is for several processes with one thread each.
    thread = stack.enter_context(ThreadPoolExecutor(1))

    async def take(key: str, amount: int) -> bool:
        return await asyncio.get_running_loop().run_in_executor(thread, put, key, amount)

    return take


def _check_writable(path: str) -> None:
    """Raise OperationalError if the file may only be read.

    The package opens such a file, and its calls fail from then on.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 0")  # a write that changes nothing


_OPENERS = {LIMITS_REDIS: _limits, THROTTLED_REDIS: _throttled, PYRATE_SQLITE: _pyrate}
