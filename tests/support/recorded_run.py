"""One run of the suites that records all requests, for all slow tests that look at them.

The first test that asks for it runs the suites in a process of its own; the others, also those of
other workers, wait for it and read what it has recorded.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PLUGIN = "tests.support.recorded_suite"
SUITE = (
    *("tests/integration/dynamodb", "tests/contract/_async", "tests/ops/applies"),
    *("tests/integration/testing", "tests/integration/waiting", "tests/integration/web"),
)
AT_MOST_S = 3000  # then it is ended, and says what it has found so far


class RecordedRun(NamedTuple):
    """The folder of the journal of calls and of the forms, and everything that the run has said."""

    folder: Path
    said: str


def recorded_run(own_folder: Path) -> RecordedRun:
    """Return the recorded run of this run of slow tests.

    ``own_folder`` is the base folder of pytest. That of a worker is inside one that all share.
    """
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    folder = (own_folder.parent if is_worker else own_folder) / "recorded-run"
    folder.mkdir(exist_ok=True)
    output = folder / "output.txt"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            output.write_text(_run(folder))
    return RecordedRun(folder, output.read_text())


def _run(folder: Path) -> str:
    """Run the suites, showing their progress on standard error; return all that they say."""
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", PLUGIN),
        *("-q", "-n", "2", "-m", "not slow", "-k", "dynamo", "--timeout", "600", *SUITE),
    ]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environment["ZAEL_RECORD_CALLS"] = environment["ZAEL_RECORD_FORMS"] = str(folder)
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipe) as run:  # type: ignore[call-overload]
        end = threading.Timer(AT_MOST_S, run.terminate)
        end.start()
        try:
            for line in run.stdout:
                lines.append(line)
                if line.endswith("%]\n"):
                    sys.stderr.write(line)
        finally:
            end.cancel()
            run.terminate()
    sys.stderr.writelines(lines[-20:])
    return "".join(lines)
