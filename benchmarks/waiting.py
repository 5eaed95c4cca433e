"""How late callers with a timeout go on: on every engine, for tasks, threads and greenlets.

    python -m benchmarks.waiting                      everything: about three minutes
    python -m benchmarks.waiting --engine sqlite --callers gevent

Three figures of each, by the clock on the wall, so the machine must be idle:

* served: how long after its token has accrued a caller goes on;
* timed out: how long after its deadline a caller that waits in vain (for a slot) is rejected;
* schedule: 40 callers on a limit of 10 a second; by how much the worst one misses its moment, in
  per cent of the 4 seconds that all of them take, and whether they went on in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

ENGINES = ("memory", "sqlite", "dynamodb")
CALLERS = ("tasks", "threads", "gevent")
ROUNDS = 25  # of the first two figures
WAITERS = 40
LATE_MS, MISSED_PCT = 10.0, 1.0  # the promise
SHORT_S = 0.2  # a deadline that passes
PATIENCE_S = 60.0


class Lateness(NamedTuple):
    """The figures of one engine and one kind of callers."""

    served_ms: list[float]
    timed_out_ms: list[float]
    missed_pct: float
    in_order: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting", description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--callers", choices=CALLERS, action="append")
    parser.add_argument("--child", nargs=2, metavar=("CALLERS", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_measured(*options.child)))
        return 0
    print(f"{'engine':10}{'callers':9}{'served ms':>24}{'timed out ms':>24}{'schedule':>18}")
    print(f"{'':19}{'median / p95 / max':>24}{'median / p95 / max':>24}")
    kept = True
    for engine in options.engine or ENGINES:
        for callers in options.callers or CALLERS:
            lateness = _in_child(engine, callers)
            kept = _print(engine, callers, lateness) and kept
    print(
        f"promised: {LATE_MS:g} ms, {MISSED_PCT:g} % and in order: {'kept' if kept else 'MISSED'}"
    )
    return 0 if kept else 1


def _print(engine: str, callers: str, lateness: Lateness) -> bool:
    late = max(*lateness.served_ms, *lateness.timed_out_ms)
    schedule = f"{lateness.missed_pct:.2f} %{'' if lateness.in_order else ', NOT in order'}"
    served, timed_out = _figures(lateness.served_ms), _figures(lateness.timed_out_ms)
    print(f"{engine:10}{callers:9}{served:>24}{timed_out:>24}{schedule:>18}", flush=True)
    return late <= LATE_MS and lateness.missed_pct <= MISSED_PCT and lateness.in_order


def _figures(samples: list[float]) -> str:
    ordered = sorted(samples)
    p95 = ordered[int(0.95 * (len(ordered) - 1))]
    return f"{median(ordered):.1f} / {p95:.1f} / {ordered[-1]:.1f}"


def _in_child(engine: str, callers: str) -> Lateness:
    """Measure in a process of its own: greenlets take the place of threads in all of it."""
    with _store(engine) as url:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.waiting", "--child", callers, url],
            stdout=subprocess.PIPE,
            check=True,
        )
    return Lateness(*json.loads(done.stdout))


@contextmanager
def _store(engine: str) -> Iterator[str]:
    if engine == "memory":
        yield "memory://"
    elif engine == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/limits.db"
    else:
        from benchmarks.dynamodb_server import CLIENT_OPTIONS, fresh_table
        from tests.support.dynamodb.tables import store_url

        os.environ["AWS_ACCESS_KEY_ID"] = CLIENT_OPTIONS["aws_access_key_id"]
        os.environ["AWS_SECRET_ACCESS_KEY"] = CLIENT_OPTIONS["aws_secret_access_key"]
        with fresh_table(apart=False) as place:
            yield store_url(place.table, place.endpoint)


def _measured(callers: str, url: str) -> Lateness:
    provision = "table" if url.startswith("dynamodb") else "stack"
    options: dict[str, Any] = {"url": url, "provision": provision, "request_timeout": 10}
    if callers == "tasks":
        return asyncio.run(_of_tasks(options))
    if callers == "gevent":
        from gevent import monkey

        monkey.patch_all()
    return _of_threads(options)


# --- tasks


async def _of_tasks(options: dict[str, Any]) -> Lateness:
    from zae_limiter import RateLimiter, RateLimitExceeded, Repository

    async with Repository.open(**options) as repository:
        await repository.set_system_defaults(_limits()[:1])
        await repository.set_resource_defaults("slots", _limits()[1:])
        limiter = RateLimiter(repository)

        async def wait(entity_id: str, timeout: float = PATIENCE_S) -> float:
            async with limiter.acquire(entity_id, "api", {"x": 1}, timeout=timeout):
                return time.monotonic()

        async def served(number: int) -> float:
            entity_id = f"served-{number}"
            async with limiter.acquire(entity_id, "api", {"x": 10}):
                pass
            seconds = await limiter.time_until_available(entity_id, "api", {"x": 1})
            due_s = time.monotonic() + seconds
            return 1000 * (await wait(entity_id) - due_s)

        async def timed_out(_: int) -> float:
            async with limiter.acquire("held", "slots", {}):
                deadline_s = time.monotonic() + SHORT_S
                try:
                    async with limiter.acquire("held", "slots", {}, timeout=SHORT_S):
                        raise AssertionError("there is one slot")
                except RateLimitExceeded:
                    return 1000 * (time.monotonic() - deadline_s)

        async def schedule() -> list[float]:
            async with limiter.acquire("many", "api", {"x": 10}):
                pass
            return list(await asyncio.gather(*[wait("many") for _ in range(WAITERS)]))

        samples = [[await each(number) for number in range(ROUNDS)] for each in (served, timed_out)]
        return Lateness(*samples, *_missed(await schedule()))


# --- threads, or greenlets in their place


def _of_threads(options: dict[str, Any]) -> Lateness:
    from zae_limiter import RateLimitExceeded, SyncRateLimiter, SyncRepository

    with SyncRepository.open(**options) as repository:
        repository.set_system_defaults(_limits()[:1])
        repository.set_resource_defaults("slots", _limits()[1:])
        limiter = SyncRateLimiter(repository)

        def wait(entity_id: str, timeout: float = PATIENCE_S) -> float:
            with limiter.acquire(entity_id, "api", {"x": 1}, timeout=timeout):
                return time.monotonic()

        def served(number: int) -> float:
            entity_id = f"served-{number}"
            with limiter.acquire(entity_id, "api", {"x": 10}):
                pass
            due_s = limiter.time_until_available(entity_id, "api", {"x": 1}) + time.monotonic()
            return 1000 * (wait(entity_id) - due_s)

        def timed_out(_: int) -> float:
            with limiter.acquire("held", "slots", {}):
                deadline_s = time.monotonic() + SHORT_S
                try:
                    with limiter.acquire("held", "slots", {}, timeout=SHORT_S):
                        raise AssertionError("there is one slot")
                except RateLimitExceeded:
                    return 1000 * (time.monotonic() - deadline_s)

        def schedule() -> list[float]:
            with limiter.acquire("many", "api", {"x": 10}):
                pass
            moments = [0.0] * WAITERS

            def call(number: int) -> None:
                moments[number] = wait("many")

            threads = [threading.Thread(target=call, args=(each,)) for each in range(WAITERS)]
            for thread in threads:
                thread.start()
                time.sleep(0.02)  # so that they arrive in order
            for thread in threads:
                thread.join()
            return moments

        samples = [[each(number) for number in range(ROUNDS)] for each in (served, timed_out)]
        return Lateness(*samples, *_missed(schedule()))


def _limits() -> list[Any]:
    from zae_limiter import Limit

    return [Limit.custom("x", 10, 10, 1), Limit.concurrent("parallel", 1)]


def _missed(moments: list[float]) -> tuple[float, bool]:
    """Return how far the worst caller is from its moment, in per cent; and whether order was kept.

    The moments are 100 ms apart, and placed so that they fit best: when the first token was there
    is not known exactly.
    """
    offsets = [moment - number / 10 for number, moment in enumerate(sorted(moments))]
    worst_s = (max(offsets) - min(offsets)) / 2
    return 100 * worst_s / (WAITERS / 10), moments == sorted(moments)


if __name__ == "__main__":
    sys.exit(main())
