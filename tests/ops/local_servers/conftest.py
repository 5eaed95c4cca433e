import os

import pytest

from tests.ops.cli.inprocess import CommandLine
from tests.support.child_server import free_port
from tests.support.dynamodb.server import find_binary
from zae_limiter_ops.local.service import LocalService


@pytest.fixture
def home(monkeypatch, tmp_path):
    """State and cache of a user who has nothing yet; its server ends with the test."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "ZAEL_"))]:
        if name != "ZAEL_MINISTACK":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ZAEL_DYNOXIDE", str(find_binary()))
    yield tmp_path
    LocalService().down()


@pytest.fixture
def port(home):
    return free_port()


@pytest.fixture
def local(home, capsys):
    """Run ``zae-limiter local``."""
    line = CommandLine(capsys, "")
    return lambda *words: line("local", *words)


@pytest.fixture
def up(local, port):
    """Start the server of the test, on its port; return the fields of its status."""

    def start(*words):
        return local("up", "--port", port, "--output", "json", *words).json

    return start
