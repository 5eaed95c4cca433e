"""The service: decisions per second and per second of its CPU, beside Redis and ``limits``.

    python -m benchmarks.service
    python -m benchmarks.service --seconds 10 --clients 16

Each case starts a service and asks it over connections that stay open: as fast as it answers, in
turns with the other protocol, then at half of that rate for the latencies. A decision is one
acquire over HTTP, or one call of Envoy's protocol. ``limits`` on Redis runs in this process: it has
no service. Figures are reported, and nothing is promised here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlencode

from benchmarks import cores, dynamodb_server, redis_server

LIMIT = "rpm:1000000000000"
STARTED_WITHIN_S = 60.0
ROUNDS = 5  # of each case, in turns, since the speed of a shared machine changes
TICKS = os.sysconf("SC_CLK_TCK")

Call = Callable[[], Awaitable[None]]


class Figures(NamedTuple):
    """What one case has shown; ``per_cpu_s`` counts the CPU time of the service alone."""

    name: str
    per_s: float
    per_cpu_s: list[float]  # of each round, the lowest first
    p50_ms: float
    p99_ms: float


class Service(NamedTuple):
    pid: int
    port: int
    grpc_port: int


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123 - no path
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def served(url: str) -> Iterator[Service]:
    """Run the command on a store whose limits never reject."""
    command = [sys.executable, "-m", "zae_limiter", "serve", "--url", url, "--no-auth"]
    command += ["--port", "0", "--grpc-port", "0", "--max-leases", "1000000"]
    with cores.of_servers():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"://[^:]+:(\d+).* port (\d+)", process.stdout.readline())
        if found is None:
            raise SystemExit("the service did not start")
        yield Service(process.pid, int(found[1]), int(found[2]))
    finally:
        process.kill()  # open leases are nothing that anybody waits for
        process.wait()


class HttpClient:
    """One connection that stays open, with as little work as possible on this side."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        self._reader, self._writer, self._port = reader, writer, port

    async def send(self, method: str, path: str, body: object = None) -> bytes:
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", answer)
        content = await self._reader.readexactly(int(found[1])) if found else b""
        if answer[9:10] != b"2":
            raise SystemExit(f"{method} {path}: {answer!r} {content!r}")
        return content


async def connect(service: Service) -> HttpClient:
    """Connect; wait until the service listens."""
    ends_at = time.monotonic() + STARTED_WITHIN_S
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            return HttpClient(reader, writer, service.port)
        except OSError:
            if time.monotonic() > ends_at:
                raise
            await asyncio.sleep(0.05)


async def http_calls(service: Service, clients: int, _stack: AsyncExitStack) -> list[Call]:
    """Return an acquire for each client."""
    calls: list[Call] = []
    for number in range(clients):
        client = await connect(service)
        body = {"entity": f"user-{number}", "resource": "api", "amounts": {"rpm": 1}}

        async def acquire(client: HttpClient = client, body: object = body) -> None:
            await client.send("POST", "/v1/leases", body)

        calls.append(acquire)
    return calls


async def grpc_calls(service: Service, clients: int, stack: AsyncExitStack) -> list[Call]:
    """Return a call of Envoy's protocol for each client; Envoy has one connection as well."""
    import grpc
    from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

    address = f"127.0.0.1:{service.grpc_port}"
    channel: Any = await stack.enter_async_context(grpc.aio.insecure_channel(address))
    stub = rls_pb2_grpc.RateLimitServiceStub(channel)
    calls: list[Call] = []
    for number in range(clients):
        request = rls_pb2.RateLimitRequest(domain="any")
        entries = request.descriptors.add().entries
        entries.add(key="entity", value=f"user-{number}")
        entries.add(key="resource", value="api")

        async def ask(request: Any = request) -> None:
            answer = await stub.ShouldRateLimit(request)
            assert answer.overall_code == rls_pb2.RateLimitResponse.OK

        calls.append(ask)
    return calls


async def as_fast_as_possible(calls: list[Call], seconds: float) -> float:
    """Return the calls per second with every client busy."""
    ends_at, count = time.perf_counter() + seconds, 0

    async def repeat(call: Call) -> None:
        nonlocal count
        while time.perf_counter() < ends_at:
            await call()
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*map(repeat, calls))
    return count / (time.perf_counter() - began)


async def at_rate(calls: list[Call], per_s: float, seconds: float) -> list[float]:
    """Return the latencies in milliseconds, each from the moment at which its call was due."""
    latencies: list[float] = []
    began = time.perf_counter()
    total = int(per_s * seconds)

    async def repeat(number: int, call: Call) -> None:
        for position in range(number, total, len(calls)):
            due = began + position / per_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await call()
            latencies.append((time.perf_counter() - due) * 1000)

    await asyncio.gather(*[repeat(number, call) for number, call in enumerate(calls)])
    return sorted(latencies)


class Case(NamedTuple):
    """What is asked, and the process whose CPU time counts: that of the service."""

    name: str
    calls: list[Call]
    pid: int


async def measure(cases: list[Case], seconds: float) -> list[Figures]:
    """Measure the highest rates in turns, then latencies at half of each."""
    rates: dict[str, list[float]] = {case.name: [] for case in cases}
    per_cpu_s: dict[str, list[float]] = {case.name: [] for case in cases}
    for case in cases:
        await as_fast_as_possible(case.calls, min(1.0, seconds))  # warms caches and connections
    for _ in range(ROUNDS):
        for case in cases:
            cpu_before, began = cpu_s(case.pid), time.perf_counter()
            per_s = await as_fast_as_possible(case.calls, seconds / ROUNDS)
            used_s = cpu_s(case.pid) - cpu_before
            rates[case.name].append(per_s)
            per_cpu_s[case.name].append(per_s * (time.perf_counter() - began) / used_s)
    found = []
    for case in cases:
        per_s = median(rates[case.name])
        latencies = await at_rate(case.calls, per_s / 2, seconds)
        figures = Figures(
            case.name,
            per_s,
            sorted(per_cpu_s[case.name]),
            latencies[len(latencies) // 2],
            latencies[len(latencies) * 99 // 100],
        )
        found.append(figures)
    return found


async def of_service(engine: str, url: str, clients: int, seconds: float) -> list[Figures]:
    """Measure both protocols on one store, each with a service of its own."""
    cases = []
    async with AsyncExitStack() as stack:
        for protocol, make in (("HTTP", http_calls), ("gRPC", grpc_calls)):
            service = stack.enter_context(served(url))
            client = await connect(service)
            await client.send("PUT", "/v1/resources/api/limits", {"limits": [LIMIT]})
            calls = await make(service, clients, stack)
            await as_fast_as_possible(calls, 0.1)
            cases.append(Case(f"{protocol}, {engine}", calls, service.pid))
        return await measure(cases, seconds)


async def of_redis(clients: int, seconds: float) -> list[Figures]:
    """Measure ``limits`` on Redis, in this process, whose CPU time counts then."""
    from limits import parse
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import FixedWindowRateLimiter

    storage = RedisStorage(f"async+{redis_server.redis_url()}", implementation="redispy")
    limiter, limit = FixedWindowRateLimiter(storage), parse("1000000000/minute")

    def hit(number: int) -> Call:
        async def call() -> None:
            assert await limiter.hit(limit, f"user-{number}")

        return call

    calls = list(map(hit, range(clients)))
    return await measure([Case("limits on Redis, no service", calls, os.getpid())], seconds)


def slowness() -> float:
    """Return how much longer a loop took than in its best moment, as the median of a second.

    Other programs on the same cores, and on other threads of the same core, make it longer.
    """
    times = []
    ends_at = time.perf_counter() + 1.0
    while time.perf_counter() < ends_at:
        began = time.thread_time_ns()
        sum(range(20_000))
        times.append(time.thread_time_ns() - began)
    return median(times) / min(times)


async def run(clients: int, seconds: float, show: Callable[[Figures], None]) -> None:
    for each in await of_service("memory", "memory://", clients, seconds):
        show(each)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/limits.db"
        _create(url)
        for each in await of_service("SQLite", url, clients, seconds):
            show(each)
    if missing := dynamodb_server.what_is_missing():
        print(f"DynamoDB is left out: {missing}")
    else:
        with dynamodb_server.fresh_table(apart=False) as place:
            query = urlencode({"region": "us-east-1", "endpoint_url": place.endpoint})
            url = f"dynamodb://{place.table}?{query}"
            for each in await of_service("DynamoDB-compatible server", url, clients, seconds):
                show(each)
    if redis_server.is_installed():
        for each in await of_redis(clients, seconds):
            show(each)
    else:
        print(redis_server.MISSING)


def _create(url: str) -> None:
    from zae_limiter import SyncRepository

    SyncRepository.builder().url(url).build().close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one sample (5)")
    parser.add_argument(
        "--clients", type=int, default=16, help="connections, or calls at once (16)"
    )
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        "| case | decisions/s | per CPU second of the service (lowest to highest round) | p50 "
        "| p99 at half load |"
    )
    print("|---|---|---|---|---|")
    asyncio.run(run(options.clients, options.seconds, show))
    print(f"A loop in Python took {slowness():.1f} times as long as in its best moment.")
    return 0


def show(figures: Figures) -> None:
    rounds = figures.per_cpu_s
    cpu = f"{median(rounds):,.0f} ({rounds[0]:,.0f} to {rounds[-1]:,.0f})"
    times = f"{figures.p50_ms:.1f} ms | {figures.p99_ms:.1f} ms"
    print(f"| {figures.name} | {figures.per_s:,.0f} | {cpu} | {times} |", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
