"""Instructions of the client for one operation, counted by callgrind.

They do not depend on the load of the machine, so two versions can be compared on a busy one:

    python -m benchmarks.instructions --beside /path/to/another/checkout

Each case runs twice, with few and with many operations. The difference leaves out the start.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WARM_UP, FEW, MANY = 30, 100, 400
COLLECTED = re.compile(r"Collected : (\d+)")
CHILD = "--operations"

Case = Callable[[str, int], None]


# --- in the child: public names alone, so that any version can be measured


def _limits(kind: str) -> list[Any]:
    from zae_limiter import Limit

    if kind == "quota":
        return [
            Limit.per_minute("rpm", 10**6),
            Limit.budget("usd", 10**6, per="month", thresholds=()),
        ]
    if kind == "short":
        return [Limit.per_day("rpm", 1), Limit.per_minute("tpm", 10**8)]
    return [Limit.per_minute("rpm", 10**6), Limit.per_minute("tpm", 10**8)]


def _amounts(kind: str) -> dict[str, int]:
    return {"rpm": 1, "usd": 1} if kind == "quota" else {"rpm": 1, "tpm": 100}


async def _open(url: str, kind: str, cascade: bool) -> Any:
    from zae_limiter import RateLimiter, Repository

    repo = await Repository.builder().url(url).rejection_cache_ttl(3600).build()
    await repo.set_system_defaults(_limits(kind))
    if cascade:
        await repo.create_entity("org")
        await repo.create_entity("user-0", parent_id="org", cascade=True)
    return RateLimiter(repo)


def _async_case(
    kind: str = "rate", *, tasks: int = 1, keys: int = 1, cascade: bool = False
) -> Case:
    async def operation(limiter: Any, key: int) -> None:
        from zae_limiter import RateLimitExceeded

        try:
            async with limiter.acquire(f"user-{key % keys}", "api", _amounts(kind)) as lease:
                if kind == "quota":
                    await lease.settle(usd="0.5")
        except RateLimitExceeded:
            assert kind == "short"

    async def run(url: str, operations: int) -> None:
        limiter = await _open(url, kind, cascade)
        left = iter(range(operations + max(WARM_UP, keys)))

        async def task() -> None:
            for key in left:
                await operation(limiter, key)

        await asyncio.gather(*[task() for _ in range(tasks)])
        await limiter.close()

    return lambda url, operations: asyncio.run(run(url, operations))


def _sync_case(kind: str = "rate", *, cascade: bool = False) -> Case:
    def run(url: str, operations: int) -> None:
        from zae_limiter import SyncRateLimiter, SyncRepository

        repo = SyncRepository.builder().url(url).rejection_cache_ttl(3600).build()
        repo.set_system_defaults(_limits(kind))
        if cascade:
            repo.create_entity("org")
            repo.create_entity("user-0", parent_id="org", cascade=True)
        limiter = SyncRateLimiter(repo)
        for _ in range(operations + WARM_UP):
            with limiter.acquire("user-0", "api", _amounts(kind)) as lease:
                if kind == "quota":
                    lease.settle(usd="0.5")
        limiter.close()

    return run


CASES = {
    "memory": _async_case(),
    "memory, sync": _sync_case(),
    "memory, cascade": _async_case(cascade=True),
    "memory, budget, settled": _async_case("quota"),
    "sqlite": _async_case(),
    "sqlite, sync": _sync_case(),
    "dynamodb, 1 task": _async_case(),
    "dynamodb, sync": _sync_case(),
    "dynamodb, cascade": _async_case(cascade=True),
    "dynamodb, 50 tasks on 1 key": _async_case(tasks=50),
    "dynamodb, 50 tasks on 1,000 keys": _async_case(tasks=50, keys=1000),
    "dynamodb, budget, settled": _async_case("quota"),
    "dynamodb, rejection from memory": _async_case("short"),
}

# --- in the parent


def _count(source: Path, name: str, operations: int, url: str) -> int:
    """Run a case under callgrind, and return the number of its instructions."""
    command = [
        *("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"),
        *(sys.executable, str(Path(__file__)), CHILD, str(operations), "--url", url, name),
    ]
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = COLLECTED.search(done.stderr)
    if done.returncode or found is None:
        raise SystemExit(f"{name} could not be measured:\n{done.stderr[-2000:]}")
    return int(found[1])


def _measure(source: Path, name: str, stack: ExitStack) -> int:
    """Return the instructions of one operation of a case."""
    few, many = (
        _count(source, name, operations, _url(name, stack))
        for operations in (_few(name), _many(name))
    )
    return (many - few) // (_many(name) - _few(name))


def _few(name: str) -> int:
    return FEW * (2 if "50 tasks" in name else 1)


def _many(name: str) -> int:
    return MANY * (2 if "50 tasks" in name else 1)


def _url(name: str, stack: ExitStack) -> str:
    """Return the URL of a new store."""
    engine = name.partition(",")[0]
    if engine == "memory":
        return "memory://"
    if engine == "sqlite":
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zael-bench-"))
        return f"sqlite:///{folder}/limits.db"
    from benchmarks.dynamodb_server import CLIENT_OPTIONS, fresh_table
    from tests.support.dynamodb.tables import store_url

    os.environ |= {name.upper(): value for name, value in CLIENT_OPTIONS.items() if "aws_" in name}
    os.environ["AWS_DEFAULT_REGION"] = CLIENT_OPTIONS["region_name"]
    place = stack.enter_context(fresh_table(apart=False))
    return store_url(place.table, place.endpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--beside", type=Path, help="another checkout, for a ratio")
    parser.add_argument("--only", default="", help="only cases whose names begin with this")
    parser.add_argument(CHILD, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("case", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.operations is not None:
        gc.disable()  # one collection in only one of the two runs would look like a slower case
        CASES[options.case](options.url, options.operations)
        return
    for name in [name for name in CASES if name.startswith(options.only)]:
        with ExitStack() as stack:
            own = _measure(ROOT, name, stack)
            other = options.beside and _measure(options.beside.resolve(), name, stack)
        beside = f" {other:>12,} {own / other:>7.3f}" if other else ""
        print(f"{name:<36} {own:>12,}{beside}", flush=True)


if __name__ == "__main__":
    main()
