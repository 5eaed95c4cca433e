import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.dynamodb.exactness.world import World
from zae_limiter.testing.dynamodb.tables import store_url, temporary_table

ROOT = Path(__file__).parents[4]
PROGRAMS = "tests.integration.dynamodb.regressions.programs"
HANGS_S = 60


@pytest.fixture(scope="session")
def stack(endpoint):
    """A table for all tests of this folder: each has a namespace of its own."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIATESTTESTTESTTEST")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with temporary_table(endpoint) as name:
            yield name


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """A namespace of the test, with a clock that stands still."""
    world = World(stack, endpoint, unique_name)
    yield world
    await world.close()


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
