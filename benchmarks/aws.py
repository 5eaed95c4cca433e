"""``python -m benchmarks --aws STACK``: latency and consumed capacity of a deployed stack.

It writes to the table: in a namespace of its own, which is removed in the end. It deploys and
updates nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.capacity_hop import CapacityHop, Units
from benchmarks.measure import percentile
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.exceptions import ZAELimiterError

# Dollars for a unit on demand in us-east-1; the dearest regions take about twice as much.
WCU, RCU = 0.625e-6, 0.125e-6
WARM_UP = 3  # reads configurations, connects, creates buckets
CAPACITY_CALLS = 10  # background writes show in the mean
TASKS = 50
# The most units of a call of any operation, and the cost of making and removing the namespace.
MOST_WCU, MOST_RCU = 4, 4
AROUND = Units(0, 1_500, 200)

RPM = Limit.per_day("rpm", 864, burst=10**6)
TPM = Limit.per_day("tpm", 86_400, burst=10**8)
EMPTY = Limit.per_day("empty", 1, burst=1)
RESOURCE, FULL_RESOURCE = "bench", "bench-full"
PARENT = "bench-parent"

Call = Callable[[RateLimiter, str], Awaitable[None]]


@dataclass(frozen=True)
class Operation:
    """One line of the tables, with the units that the documents say; ``key`` is its entity."""

    name: str
    call: Call
    key: str
    documented: Units
    reads_first: bool = False
    rejection_cache_ttl: float = 0.0


class Latency(NamedTuple):
    """Of single calls, one after the other unless there are tasks."""

    name: str
    p50_ms: float
    p95_ms: float
    p99_ms: float
    per_second: float


class Capacity(NamedTuple):
    """The mean units of one call, and the units that the documents state."""

    name: str
    measured: Units
    documented: Units

    @property
    def is_as_documented(self) -> bool:
        return self.measured == self.documented


async def _one_limit(limiter: RateLimiter, key: str) -> None:
    async with limiter.acquire(key, RESOURCE, {"rpm": 1}):
        pass


async def _two_limits(limiter: RateLimiter, key: str) -> None:
    async with limiter.acquire(key, RESOURCE, {"rpm": 1, "tpm": 100}):
        pass


async def _settled(limiter: RateLimiter, key: str) -> None:
    async with limiter.acquire(key, RESOURCE, {"rpm": 1, "tpm": 100}) as lease:
        await lease.adjust(tpm=20)


async def _rejected(limiter: RateLimiter, key: str) -> None:
    try:
        async with limiter.acquire(key, FULL_RESOURCE, {"empty": 1}):
            pass
    except RateLimitExceeded:
        pass


async def _looked(limiter: RateLimiter, key: str) -> None:
    await limiter.available(key, RESOURCE)


OPERATIONS = (
    Operation("acquire, one limit", _one_limit, "one", Units(1, 1, 0)),
    Operation("acquire, two limits", _two_limits, "two", Units(1, 1, 0)),
    Operation("acquire, cascading", _two_limits, "child", Units(2, 2, 0)),
    Operation("acquire with adjust", _settled, "settled", Units(2, 2, 0)),
    Operation("acquire, reads first", _two_limits, "read", Units(2, 1, 1), reads_first=True),
    Operation("rejection, asked", _rejected, "asked", Units(1, 1, 0)),
    Operation("rejection, known", _rejected, "known", Units(), rejection_cache_ttl=60.0),
    Operation("available", _looked, "two", Units(1, 0, 1)),
)


class Stack(NamedTuple):
    """Where the calls go. ``endpoint`` is AWS, or the endpoint that ``AWS_ENDPOINT_URL`` names."""

    name: str
    region: str
    endpoint: str
    session: Any

    @classmethod
    def found(cls, name: str, region: str | None) -> Stack:
        """Resolve region, endpoint and credentials as the AWS command line does."""
        from botocore.session import Session

        session = Session()
        client = session.create_client("dynamodb", region_name=region)
        if session.get_credentials() is None:
            raise SystemExit(
                "no AWS credentials were found; 'aws sts get-caller-identity' says why"
            )
        return cls(name, client.meta.region_name, client.meta.endpoint_url, session)

    async def open(
        self, namespace: str, endpoint: str | None = None, **settings: Any
    ) -> Repository:
        return await Repository.open(
            namespace,
            stack=self.name,
            region=self.region,
            endpoint_url=endpoint or self.endpoint,
            provision="never",
            auto_update=False,
            request_timeout=10.0,
            max_shards=1,
            config_cache_ttl=3600,
            **settings,
        )


def main(stack: Stack, *, calls: int, is_confirmed: bool, console: Console) -> int:
    """State the cost, ask, measure, print both tables, and remove the namespace."""
    most = most_units(calls)
    dollars = most.wcu * WCU + most.rcu * RCU
    console.print(
        f"This writes to the table of {stack.name} at {stack.endpoint} ({stack.region}), in a "
        f"namespace of its own that is removed in the end: at most {most.wcu:,.0f} write and "
        f"{most.rcu:,.0f} read units, ${dollars:.2f} on demand in us-east-1. Audit events about "
        "the namespace stay until they expire. Tables with provisioned capacity may be throttled.",
        highlight=False,
        markup=False,
    )
    if not is_confirmed and not _agrees():
        console.print("nothing was written; --yes goes on without asking")
        return 2
    try:
        latencies, capacities = asyncio.run(measure(stack, calls))
    except ZAELimiterError as error:
        console.print(str(error), *getattr(error, "__notes__", ()), style="red", markup=False)
        return 1
    print_tables(console, latencies, capacities)
    return 0


def most_units(calls: int) -> Units:
    """Return the most units that a run consumes."""
    made = len(OPERATIONS) * (calls + CAPACITY_CALLS + 2 * WARM_UP) + 2 * TASKS * calls
    return AROUND.plus(Units(made, made * MOST_WCU, made * MOST_RCU))


def _agrees() -> bool:
    return sys.stdin.isatty() and input("Continue? [y/N] ").strip().lower() in ("y", "yes")


async def measure(
    stack: Stack, calls: int, tasks: int = TASKS
) -> tuple[list[Latency], list[Capacity]]:
    """Measure in a new namespace, and remove it whatever happens."""
    namespace = f"bench-{secrets.token_hex(6)}"
    async with await stack.open(namespace) as admin:
        try:
            await _prepare(admin)
            latencies = [await _latency(stack, namespace, each, calls) for each in OPERATIONS]
            latencies += await _together(stack, namespace, calls, tasks)
            hop = CapacityHop(stack.session, stack.region, stack.endpoint)
            with hop.running():
                capacities = [await _capacity(stack, namespace, hop, each) for each in OPERATIONS]
        finally:
            await _remove(admin, namespace)
    return latencies, capacities


async def _remove(admin: Repository, namespace: str) -> None:
    try:
        await admin.purge_namespace(await admin.delete_namespace(namespace))
    except ZAELimiterError as error:
        error.add_note(
            f"The namespace {namespace} is left: remove it by 'zae-limiter namespace delete' "
            "and 'zae-limiter namespace purge'."
        )
        raise


async def _prepare(admin: Repository) -> None:
    await admin.set_resource_defaults(RESOURCE, [RPM, TPM])
    await admin.set_resource_defaults(FULL_RESOURCE, [EMPTY])
    await admin.create_entity(PARENT)
    await admin.create_entity("child", parent_id=PARENT, cascade=True)


async def _latency(stack: Stack, namespace: str, operation: Operation, calls: int) -> Latency:
    async with await _client(stack, namespace, operation) as repository:
        limiter = _limiter(repository, operation)
        await _warm_up(limiter, operation)
        waits: list[float] = []
        for _ in range(calls):
            started = time.perf_counter()
            await operation.call(limiter, operation.key)
            waits.append(time.perf_counter() - started)
    return _summary(operation.name, waits, sum(waits))


async def _together(stack: Stack, namespace: str, calls: int, tasks: int) -> list[Latency]:
    """Measure many tasks: on buckets of their own, and on one that they share."""
    lines = []
    for name, keys in (
        (f"{tasks} tasks, a bucket each", [f"task-{number}" for number in range(tasks)]),
        (f"{tasks} tasks on one bucket", ["shared"] * tasks),
    ):
        async with await stack.open(namespace) as repository:
            limiter = RateLimiter(repository)
            await asyncio.gather(*(_two_limits(limiter, key) for key in keys))
            waits: list[float] = []

            async def work(key: str, limiter: RateLimiter, waits: list[float]) -> None:
                for _ in range(calls):
                    started = time.perf_counter()
                    await _two_limits(limiter, key)
                    waits.append(time.perf_counter() - started)

            started = time.perf_counter()
            await asyncio.gather(*(work(key, limiter, waits) for key in keys))
            lines.append(_summary(name, waits, time.perf_counter() - started))
    return lines


async def _capacity(
    stack: Stack, namespace: str, hop: CapacityHop, operation: Operation
) -> Capacity:
    async with await _client(stack, namespace, operation, hop.url) as repository:
        limiter = _limiter(repository, operation)
        await _warm_up(limiter, operation)
        await repository.list_resources()  # waits for writes in the background
        hop.taken()
        for _ in range(CAPACITY_CALLS):
            await operation.call(limiter, operation.key)
        taken = hop.taken()  # before it closes, which stores the last rejections
    return Capacity(operation.name, taken.each_of(CAPACITY_CALLS), operation.documented)


async def _client(
    stack: Stack, namespace: str, operation: Operation, endpoint: str | None = None
) -> Repository:
    return await stack.open(namespace, endpoint, rejection_cache_ttl=operation.rejection_cache_ttl)


def _limiter(repository: Repository, operation: Operation) -> RateLimiter:
    return RateLimiter(repository, speculative_writes=not operation.reads_first)


async def _warm_up(limiter: RateLimiter, operation: Operation) -> None:
    for _ in range(WARM_UP):
        await operation.call(limiter, operation.key)


def _summary(name: str, waits: list[float], seconds: float) -> Latency:
    p50, p95, p99 = (percentile(waits, percent) * 1000 for percent in (50, 95, 99))
    return Latency(name, p50, p95, p99, len(waits) / seconds if seconds else 0.0)


def print_tables(console: Console, latencies: list[Latency], capacities: list[Capacity]) -> None:
    latency = Table("latency", "p50 ms", "p95 ms", "p99 ms", "calls/s")
    for line in latencies:
        figures = (line.p50_ms, line.p95_ms, line.p99_ms)
        latency.add_row(line.name, *(f"{ms:,.2f}" for ms in figures), f"{line.per_second:,.0f}")
    capacity = Table("capacity of one call", "calls", "WCU", "RCU", "documented")
    for row in capacities:
        measured = (f"{row.measured.calls}", f"{row.measured.wcu:g}", f"{row.measured.rcu:g}")
        documented = "{} / {:g} / {:g}".format(*row.documented)
        capacity.add_row(row.name, *measured, documented + ("" if row.is_as_documented else " !"))
    console.print(latency, capacity, sep="\n\n")
