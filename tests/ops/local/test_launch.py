"""Starting and ending processes, and the folders of a user."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child_server import free_port
from zae_limiter_ops.local import LocalServerError, cache_folder, processes, state_folder
from zae_limiter_ops.local.launch import launch_detached
from zae_limiter_ops.local.programs import ServerProgram
from zae_limiter_ops.local.service import LocalService

# Prints its process id, and ignores SIGTERM.
STAYS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(60)
"""


class Stays(ServerProgram):
    name = "stays"
    started_within_s = 0.5  # it never answers

    def command(self, port):
        return [sys.executable, "-c", STAYS]


class Missing(ServerProgram):
    name = "missing"

    def command(self, port):
        return [str(self.binary)]


def test_a_server_that_does_not_answer_is_not_left_running(tmp_path):
    log = tmp_path / "server.log"
    with pytest.raises(LocalServerError, match=r"stays did not answer within 0.5 s"):
        launch_detached(Stays(Path(sys.executable)), free_port(), log)
    pid = log.read_text().strip()
    assert not pid or processes.start_token(int(pid)) is None


def test_a_program_that_is_gone_is_an_error_that_says_what_to_do(tmp_path):
    program = Missing(tmp_path / "gone")
    with pytest.raises(LocalServerError, match=r"_MISSING=/path"):
        launch_detached(program, free_port(), tmp_path / "server.log")


@pytest.fixture
def deaf():
    with subprocess.Popen(
        [sys.executable, "-c", STAYS], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_that_does_not_listen_is_killed(deaf):
    token = processes.start_token(deaf.pid)
    assert processes.end(deaf.pid, token, within_s=0.1)
    assert processes.start_token(deaf.pid) is None
    assert not processes.end(deaf.pid, token)


def test_a_process_is_told_from_another_one_by_its_start(deaf):
    assert processes.is_running(deaf.pid, processes.start_token(deaf.pid))
    assert not processes.is_running(deaf.pid, processes.start_token(os.getpid()))
    assert not processes.end(deaf.pid, processes.start_token(os.getpid()))
    assert deaf.poll() is None


def test_a_process_that_has_ended_but_was_not_waited_for_does_not_run(deaf):
    os.kill(deaf.pid, signal.SIGKILL)
    os.waitid(os.P_PID, deaf.pid, os.WEXITED | os.WNOWAIT)
    assert processes.start_token(deaf.pid) is None


@pytest.mark.parametrize(
    ("platform", "state", "cache"),
    [
        ("linux", ".local/state/zae-limiter", ".cache/zae-limiter"),
        (
            "darwin",
            "Library/Application Support/zae-limiter",
            "Library/Caches/zae-limiter",
        ),
    ],
)
def test_folders_are_where_the_system_has_them(monkeypatch, tmp_path, platform, state, cache):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the rules of XDG ignore
    assert state_folder() == tmp_path / state
    assert cache_folder() == tmp_path / cache
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert state_folder() == tmp_path / "elsewhere" / "zae-limiter"


def test_windows_is_told_what_else_there_is(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(LocalServerError, match="WSL"):
        LocalService()
