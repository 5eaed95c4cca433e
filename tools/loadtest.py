"""Run the LLM scenario on a server of its own, and check the ledger of its users.

    python -m tools.loadtest                     a minute, as `make loadtest` does
    python -m tools.loadtest --seconds 10 --benchmark

``--benchmark`` also measures "50 tasks, 1000 keys" of the benchmarks before and after, and fails
if the load test reaches less than 60 % of its writes per second. For an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from tests.support.dynamodb import DynamoServer
from tests.support.dynamodb.tables import store_url, temporary_table

ROOT = Path(__file__).parents[1]
FOLDER, FILE = ROOT / "examples/locust", "locustfiles/llm_gateway.py"
AT_LEAST = 0.6  # of the writes per second of the benchmark
CASE = "^zae-limiter dynamodb, two limits, async, 50 tasks, 1000 keys$"
# The local server does not check them.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.loadtest", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="duration of the test (60)")
    parser.add_argument("--users", type=int, default=50, help="number of users (50)")
    parser.add_argument("--workers", type=int, default=1, help="number of workers (1)")
    parser.add_argument("--benchmark", action="store_true", help="compare with the benchmark")
    options = parser.parse_args()
    os.environ.update(CREDENTIALS)
    rates = [benchmark_rate()] if options.benchmark else []
    with _store() as url:
        code = _run(url, options)
    if not options.benchmark:
        return code
    report = _run_plain(options)  # its users count nothing: a ledger costs CPU, too
    rates.append(benchmark_rate())
    share = report["writes_per_second"] / mean(rates)
    print(
        f"load test: {report['writes_per_second']:,.0f} writes/s, benchmark: "
        f"{' and '.join(f'{rate:,.0f}' for rate in rates)}: {share:.0%}, at least {AT_LEAST:.0%} "
        f"wanted; bound by {report['bound']}: {report['bound_reason']}"
    )
    return code or (1 if share < AT_LEAST else 0)


def benchmark_rate() -> float:
    """Return the acquires, each of them a write, per second of the benchmark."""
    path = ROOT / ".bench/loadtest.json"
    command = [sys.executable, "-m", "benchmarks", "--rounds", "3", "--only", CASE]
    subprocess.run([*command, "--json", str(path)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    (case,) = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return float(case["per_second"])


@contextmanager
def _store() -> Iterator[str]:
    with DynamoServer() as server, temporary_table(server.url) as table:
        yield store_url(table, server.url)


def _command(url: str, options: argparse.Namespace) -> list[str]:
    numbers = {"users": options.users, "workers": options.workers, "duration": options.seconds}
    words = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    program = [sys.executable, "-m", "zae_limiter", "loadtest", "run", "--local"]
    return [*program, "-C", str(FOLDER), "-f", FILE, "--url", url, *words]


def _run(url: str, options: argparse.Namespace) -> int:
    return subprocess.run([*_command(url, options), "--verify"], check=False).returncode


def _run_plain(options: argparse.Namespace) -> dict[str, Any]:
    with _store() as url:
        command = [*_command(url, options), "--output", "json"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


if __name__ == "__main__":
    sys.exit(main())
