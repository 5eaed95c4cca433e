"""The Lambda functions: cold imports of their packages, and records that the aggregator processes.

    python -m benchmarks --only functions

A cold import is the processor's time, user and system, of ``import index`` in an interpreter that
has imported nothing but what it starts with (``-I -S``). The package is unpacked and has no
bytecode, since Lambda's ``/var/task`` cannot be written; the standard library has its own. "On
Lambda" leaves out what Lambda's runtime has imported before the function. "First call" adds what
the first invocation imports: the rest of the package that it needs, and what speaks TLS. Measured
are all versions of Python from 3.11 to 3.13 that pyenv has, and the one that runs this.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.verdict import Verdict
from tests.support.dynamodb.streams import bucket_record
from tests.support.dynamodb.usage_rows import bucket_with_hours
from zae_limiter.items.stored.keys import BucketId
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.report import Log
from zae_limiter_ops.infra.packages import FunctionPackage, aggregator_package, provisioner_package

STARTS = 15  # of each function and Python, in turn
ROUNDS = 15  # of all records
RECORDS = 1000
RECORDS_PER_SECOND = 20_000
MAX_IMPORT_MS = 300.0
PACKAGES: dict[str, Callable[[], FunctionPackage]] = {
    "aggregator": aggregator_package,
    "provisioner": provisioner_package,
}
# Lambda's runtime interface client (awslambdaric) imports these modules itself.
BY_LAMBDA = "import concurrent.futures.thread, decimal, importlib, json, logging, traceback\n"
# An empty batch, or a manifest that is refused before the table is asked.
EVENTS = {
    "aggregator": {"Records": []},
    "provisioner": {"action": "plan", "manifest": {"system": {"limits": {"rpm": 0}}}},
}
START = """
import os, sys, time
os.environ.update(TABLE_NAME="t", AWS_REGION="us-east-1", AWS_ACCESS_KEY_ID="k",
                  AWS_SECRET_ACCESS_KEY="s")
sys.path.insert(0, sys.argv[1])
{first}began = time.process_time()
import index
imported = time.process_time()
sys.stdout = sys.stderr
index.handler({event}, None)
import concurrent.futures.thread, socket, ssl
print(imported - began, time.process_time() - began, file=sys.__stdout__)
"""


class Start(NamedTuple):
    """One start, in milliseconds of processor time."""

    import_ms: float
    first_call_ms: float


class ColdImport(NamedTuple):
    """Medians of one function on one Python, in milliseconds of processor time."""

    function: str
    python: str
    import_ms: float
    on_lambda_ms: float
    first_call_ms: float
    package_kb: float


class Throughput(NamedTuple):
    """Processor time of one stream record, and of parsing its JSON, which Lambda does first."""

    record_us: float
    json_us: float

    @property
    def per_second(self) -> float:
        return 1e6 / self.record_us


def cold_imports(show: Callable[[str], None]) -> list[ColdImport]:
    """Measure every function on every Python, in turn."""
    pythons = list(_pythons())
    times: dict[tuple[str, Path, str], list[Start]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for function, package in PACKAGES.items():
            with zipfile.ZipFile(io.BytesIO(package().content)) as archive:
                archive.extractall(Path(folder, function))
        for number in range(STARTS):
            show(f"functions, start {number + 1} of {STARTS}")
            for function in PACKAGES:
                for python in pythons:
                    for first in ("", BY_LAMBDA):
                        start = start_once(python, Path(folder, function), first)
                        times.setdefault((function, python, first), []).append(start)
    return [
        ColdImport(
            function,
            _version(python),
            median(start.import_ms for start in times[function, python, ""]),
            median(start.import_ms for start in times[function, python, BY_LAMBDA]),
            median(start.first_call_ms for start in times[function, python, ""]),
            len(PACKAGES[function]().content) / 1000,
        )
        for function in PACKAGES
        for python in pythons
    ]


def start_once(python: Path, folder: Path, first: str) -> Start:
    """Start a function in a process of its own; ``first`` is imported before the handler."""
    program = START.format(first=first, event=EVENTS[folder.name])
    command = [str(python), "-I", "-S", "-B", "-c", program, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Start(*(float(seconds) * 1000 for seconds in done.stdout.split()))


def throughput(show: Callable[[str], None]) -> Throughput:
    """Process turned hours whose calls are answered at once; each is stored and cleared."""
    show("functions, records")
    records = [_turned(number) for number in range(RECORDS)]
    text, processor = json.dumps(records), Processor(_Calls())
    record_us, json_us = [], []
    for _ in range(ROUNDS):
        began = time.process_time()
        processor.process(records, Log(output=lambda line: None), time.monotonic() + 60)
        between = time.process_time()
        json.loads(text)
        record_us.append((between - began) / RECORDS * 1e6)
        json_us.append((time.process_time() - between) / RECORDS * 1e6)
    processor.close()
    return Throughput(median(record_us), median(json_us))


def _turned(number: int) -> dict[str, Any]:
    """Return the record of a bucket that has turned its hour."""
    bucket_id = BucketId("ns", f"user-{number}", "api")
    item = bucket_with_hours(bucket_id, "0.abc", 12, 5, finished=(9, 4))
    record: dict[str, Any] = bucket_record(item, number)
    return record


class _Calls:
    """Encodes requests, and answers at once."""

    table = "my-table"

    def call(self, operation: str, body: Any) -> dict[str, Any]:
        if operation == "UpdateItem":
            body.encode()
        return {}

    def put_object(self, bucket: str, name: str, body: bytes) -> None:
        raise NotImplementedError


def print_functions(console: Console, imports: list[ColdImport], records: Throughput) -> None:
    table = Table("functions", "Python", "cold import", "on Lambda", "first call", "package")
    for row in imports:
        table.add_row(
            row.function,
            row.python,
            f"{row.import_ms:.0f} ms",
            f"{row.on_lambda_ms:.0f} ms",
            f"{row.first_call_ms:.0f} ms",
            f"{row.package_kb:.0f} KB",
        )
    console.print(table)
    console.print(
        f"aggregator: {records.per_second:,.0f} records/s per core, {records.record_us:.1f} µs "
        f"each, {records.record_us / records.json_us:.1f} × json.loads of the same records"
    )


def function_verdicts(imports: list[ColdImport], records: Throughput) -> list[Verdict]:
    return [
        *(
            Verdict(
                f"functions, {row.function} on {row.python}: a cold import takes at most "
                f"{MAX_IMPORT_MS:.0f} ms",
                f"{row.import_ms:.0f} ms",
                row.import_ms <= MAX_IMPORT_MS,
            )
            for row in imports
        ),
        Verdict(
            f"functions, aggregator: at least {RECORDS_PER_SECOND:,} records/s per core",
            f"{records.per_second:,.0f}",
            records.per_second >= RECORDS_PER_SECOND,
        ),
    ]


def _pythons() -> Iterator[Path]:
    versions = Path.home() / ".pyenv" / "versions"
    found = [
        path
        for minor in ("3.11", "3.12", "3.13")
        for path in sorted(versions.glob(f"{minor}.*/bin/python"))
    ]
    own = Path(sys.executable).resolve()
    yield from found
    if own not in {path.resolve() for path in found}:
        yield own


def _version(python: Path) -> str:
    done = subprocess.run([str(python), "-V"], check=True, capture_output=True, text=True)
    return done.stdout.split()[1]
