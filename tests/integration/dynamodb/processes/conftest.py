import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dynamodb.tables import store_url

ROOT = Path(__file__).parents[4]
PROGRAMS = "tests.integration.dynamodb.processes.programs"
HANGS_S = 60


@pytest.fixture
def run_program(stack, proxy, unique_name):
    """Runs one of the programs to its end, in the test's namespace; returns what it printed."""

    url = store_url(stack, proxy.url)

    def run(name, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", f"{PROGRAMS}.{name}", unique_name, url, *arguments],
            cwd=ROOT,
            timeout=HANGS_S,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run
