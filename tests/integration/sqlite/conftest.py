import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zae_limiter.testing import FakeClock

FOLDER = Path(__file__).parent


@pytest.fixture
def path(tmp_path):
    return tmp_path / "limits.db"


@pytest.fixture
def url(path):
    return f"sqlite:///{path}"


@pytest.fixture
def sqlite_url(path):
    """The same file, without waiting for the disk."""
    return f"sqlite:///{path}?synchronous=OFF"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def start():
    """Start scripts of this folder, or code, as processes that do not outlive the test."""
    children = []

    def begin(*arguments):
        command = [str(FOLDER / arguments[0]), *arguments[1:]]
        child = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stdin=subprocess.PIPE
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def in_background():
    """Ignore SIGINT and let child processes inherit that, as in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)
