"""The operator's page on large stores: how soon it shows something, and what a refresh costs.

    python -m benchmarks.dashboard sqlite --buckets 100000
    python -m benchmarks.dashboard dynamodb --buckets 10000
    python -m benchmarks.dashboard memory --refreshes 1800

``sqlite`` and ``dynamodb`` start the command on a store with many buckets, and ask for pages as a
browser would. ``sqlite`` also times the acquires of another process, with and without somebody who
looks. ``memory`` refreshes a page as often as an hour does, one refresh after the other, and shows
the memory of the command. Figures are reported, and nothing is promised here.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import quote, urlsplit

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

RESOURCES = 20
ACTIVE_SHARE = 5  # one bucket in so many is in use, the others are full
LIMITS = [Limit.per_day("rpd", 1000), Limit.per_day("tpd", 10**6)]
SORTS = ("used", "name", "wait", "rejected", "level")
ACQUIRES = """
import sys, time
from zae_limiter import SyncRateLimiter, SyncRepository
limiter = SyncRateLimiter(SyncRepository.open("default", url=sys.argv[1]))
until, times = time.monotonic() + float(sys.argv[2]), []
while time.monotonic() < until:
    started = time.perf_counter()
    with limiter.acquire("writer", "model-0", {"rpd": 0}):
        pass
    times.append((time.perf_counter() - started) * 1000)
    time.sleep(0.005)
times.sort()
print(len(times), times[len(times) // 2], times[len(times) * 99 // 100], times[-1])
"""


class Viewer:
    """The requests of a browser."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.port = parts.port or 80
        token = parts.fragment.removeprefix("token=")
        _, cookie, _ = self._ask("POST", "/session", json.dumps({"token": token}))
        self.cookie = cookie.partition(";")[0]

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[str, str, list[float]]:
        headers = {
            "Sec-Fetch-Site": "same-origin",
            "Origin": f"http://127.0.0.1:{self.port}",
            "Cookie": getattr(self, "cookie", ""),
        }
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 200, text
        timing = answer.getheader("server-timing") or ""
        durations = [float(each) for each in re.findall(r"dur=([\d.]+)", timing)] or [0.0, 0.0]
        return text, answer.getheader("set-cookie") or "", durations

    def page(self, path: str) -> tuple[str, float, float]:
        """Return the text of a page, and the server's CPU time and time in milliseconds."""
        text, _, (cpu_ms, total_ms) = self._ask("GET", f"/n/default/{path}")
        return text, cpu_ms, total_ms


@contextmanager
def served(url: str) -> Iterator[tuple[Viewer, subprocess.Popen[str]]]:
    """Start the command on a store."""
    command = [sys.executable, "-m", "zae_limiter", "dashboard", "--no-open", "--port", "0"]
    with subprocess.Popen([*command, "--url", url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield Viewer(line.split()[-1]), process
        finally:
            process.terminate()


def first_view(viewer: Viewer, resource: str) -> None:
    """Show the time to the first rows and to the complete board."""
    started = time.perf_counter()
    text, _, _ = viewer.page(f"resource?name={resource}")
    first = time.perf_counter() - started
    rows = text.count("<tr>")
    while "being read" in viewer.page(f"resource?name={resource}")[0]:
        time.sleep(0.1)
    complete = time.perf_counter() - started
    print(f"first rows after {first:.2f} s ({rows} rows), complete after {complete:.1f} s")


def refreshes(viewer: Viewer, resource: str) -> None:
    """Show the server's time of sorted, searched pages and of refreshes, and the age of lists."""
    times: list[float] = []
    cpu_times: list[float] = []
    paths = [f"resource?name={resource}&sort={sort}" for sort in SORTS]
    paths += [f"resource?name={resource}&q={digits}&page=2" for digits in ("00", "7", "123")]
    paths += ["resources", "overview", "overview/live", f"resource/live?name={resource}"]
    slowest = ("", 0.0)
    for _ in range(5):
        for path in paths:
            _, cpu_ms, total_ms = viewer.page(path)
            times.append(total_ms)
            cpu_times.append(cpu_ms)
            slowest = max(slowest, (path, cpu_ms), key=lambda each: each[1])
        time.sleep(2)
    ages = []
    for _ in range(15):
        found = re.search(r"lists read (\d+) s ago", viewer.page("overview/live")[0])
        ages.append(int(found[1]) if found else 0)
        time.sleep(2)
    for name, each in (("CPU time", sorted(cpu_times)), ("time", sorted(times))):
        print(
            f"{name} of {len(each)} pages: median {median(each):.0f} ms, 95 % within "
            f"{each[len(each) * 95 // 100]:.0f} ms, longest {each[-1]:.0f} ms"
        )
    print(f"most CPU time: {slowest[0]}; oldest lists {max(ages)} s")
    text, _, _ = viewer.page("overview/live")
    if units := re.search(r"a refresh costs about [^<\n]*", text):
        print(units[0])


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def resident_mb(process: subprocess.Popen[str]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


# --- SQLite ----------------------------------------------------------------------------------


def fill_sqlite(file: Path, buckets: int) -> str:
    """Write buckets into a file, by copies of two rows: one in use, one full."""
    url = f"sqlite:///{quote(str(file))}"
    with SyncRepository.open("default", url=url) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults(LIMITS)
        with limiter.acquire("active", "model-0", {"rpd": 800, "tpd": 1000}):
            pass
        with limiter.acquire("idle", "model-0", {"rpd": 0}):
            pass
    with closing(sqlite3.connect(file)) as database:
        rows = {row[1]: row for row in database.execute("SELECT * FROM bucket")}
        copies = []
        for number in range(buckets):
            row = rows["active" if number % ACTIVE_SHARE == 0 else "idle"]
            resource = f"model-{number // ACTIVE_SHARE % RESOURCES}"
            copies.append((row[0], f"key-{number:06d}", resource, *row[3:]))
        database.executemany("INSERT INTO bucket VALUES (?, ?, ?, ?, ?)", copies)
        names = [(rows["idle"][0], f"model-{number}") for number in range(RESOURCES)]
        database.executemany("INSERT OR IGNORE INTO resource_in_use VALUES (?, ?)", names)
        database.commit()
    return url


def time_acquires(url: str, seconds: float) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ACQUIRES, url, str(seconds)],
        capture_output=True,
        text=True,
        check=True,
    )
    count, middle, most, longest = map(float, done.stdout.split())
    return f"median {middle:.1f} ms, 99 % {most:.1f} ms, longest {longest:.1f} ms of {count:.0f}"


def measure_sqlite(buckets: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = fill_sqlite(Path(folder, "limits.db"), buckets)
        print(f"SQLite with {buckets:,} buckets in {RESOURCES} resources")
        print(f"acquires of another process, nobody looks: {time_acquires(url, seconds)}")
        with served(url) as (viewer, process):
            first_view(viewer, "model-3")
            refreshes(viewer, "model-3")
            before, started = cpu_seconds(process), time.monotonic()
            watching = subprocess.Popen(
                [sys.executable, "-c", ACQUIRES, url, str(seconds)],
                stdout=subprocess.PIPE,
                text=True,
            )
            while watching.poll() is None:
                viewer.page("overview/live")
                time.sleep(2)
            assert watching.stdout is not None
            count, middle, most, longest = map(float, watching.stdout.read().split())
            print(
                f"acquires of another process, somebody looks: median {middle:.1f} ms, "
                f"99 % {most:.1f} ms, longest {longest:.1f} ms of {count:.0f}"
            )
            share = (cpu_seconds(process) - before) / (time.monotonic() - started)
            print(f"the page takes {share:.0%} of a core and {resident_mb(process):.0f} MB")
        print(f"acquires of another process, nobody looks: {time_acquires(url, seconds)}")


# --- DynamoDB --------------------------------------------------------------------------------


async def fill_dynamodb(url: str, buckets: int) -> None:
    opening = Repository.open("default", url=url, provision="never", request_timeout=60)
    async with await opening as repository:
        limiter = RateLimiter(repository)
        await limiter.set_system_defaults(LIMITS)
        numbers = iter(range(buckets))

        async def work() -> None:
            for number in numbers:
                amounts = {"rpd": 800} if number % ACTIVE_SHARE == 0 else {"rpd": 1}
                resource = f"model-{number // ACTIVE_SHARE % RESOURCES}"
                async with limiter.acquire(f"key-{number:06d}", resource, amounts):
                    pass

        await asyncio.gather(*(work() for _ in range(16)))


def measure_dynamodb(buckets: int) -> None:
    from benchmarks.dynamodb_server import CLIENT_OPTIONS, fresh_table

    os.environ["AWS_ACCESS_KEY_ID"] = CLIENT_OPTIONS["aws_access_key_id"]
    os.environ["AWS_SECRET_ACCESS_KEY"] = CLIENT_OPTIONS["aws_secret_access_key"]
    with fresh_table(apart=False) as place:
        url = f"dynamodb://{place.table}?region=us-east-1&endpoint_url={quote(place.endpoint)}"
        asyncio.run(fill_dynamodb(url, buckets))
        print(f"DynamoDB-compatible server with {buckets:,} buckets in {RESOURCES} resources")
        with served(url) as (viewer, process):
            first_view(viewer, "model-3")
            refreshes(viewer, "model-3")
            print(f"the page takes {resident_mb(process):.0f} MB")


# --- memory ----------------------------------------------------------------------------------


def measure_memory(refresh_count: int, buckets: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = fill_sqlite(Path(folder, "limits.db"), buckets)
        print(f"SQLite with {buckets:,} buckets, {refresh_count:,} refreshes")
        with served(url) as (viewer, process):
            first_view(viewer, "model-3")
            for number in range(refresh_count + 1):
                # Every address is rendered anew: the floor is one refresh in 2 s for each.
                viewer.page(f"overview/live?number={number}")
                viewer.page(f"resource/live?name=model-3&number={number}")
                if number % max(1, refresh_count // 6) == 0:
                    print(f"after {number:,} refreshes: {resident_mb(process):.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("what", choices=("sqlite", "dynamodb", "memory"))
    parser.add_argument("--buckets", type=int, help="100,000 on SQLite, 10,000 on DynamoDB")
    parser.add_argument("--seconds", type=float, default=20, help="of timed acquires (20)")
    parser.add_argument("--refreshes", type=int, default=1800, help="of 'memory' (1,800: an hour)")
    options = parser.parse_args()
    if options.what == "sqlite":
        measure_sqlite(options.buckets or 100_000, options.seconds)
    elif options.what == "dynamodb":
        measure_dynamodb(options.buckets or 10_000)
    else:
        measure_memory(options.refreshes, options.buckets or 2_000)


if __name__ == "__main__":
    main()
