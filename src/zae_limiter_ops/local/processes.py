"""Processes of this machine: check whether a process still runs, and end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

END_WITHIN_S = 10.0  # after this time a process is killed
PAUSE_S = 0.01
_PROC = Path("/proc")
_ASK_WITHIN_S = 5.0  # on a machine that may be busy


def start_token(pid: int) -> str | None:
    """Return a token that identifies a process; None if the process has ended.

    A later process with the same id has another token. On Linux, the token is the id of the boot
    and the start time of the process since then; elsewhere, it is the date and time of the start.
    """
    with suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)  # a child that has ended stays a zombie until it is waited for
    if sys.platform == "linux":
        return _token_of_proc(pid)
    state, _, started = _ask("ps", "-o", "state=,lstart=", "-p", str(pid)).strip().partition(" ")
    return started.strip() or None if not state.startswith("Z") else None


def _token_of_proc(pid: int) -> str | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name, in parentheses, may contain anything
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def is_running(pid: int, token: str) -> bool:
    """Return whether the process with this token still runs."""
    return start_token(pid) == token


def end(pid: int, token: str, *, within_s: float = END_WITHIN_S) -> bool:
    """End a process that leads its own group; return False if it had ended before.

    The process gets SIGTERM first. After ``within_s`` its whole group is killed.
    """
    if not is_running(pid, token):
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not _wait_for_end(pid, token, within_s):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _wait_for_end(pid, token, within_s)
    return True


def _wait_for_end(pid: int, token: str, within_s: float) -> bool:
    give_up_at = time.monotonic() + within_s
    while is_running(pid, token):
        if time.monotonic() > give_up_at:
            return False
        time.sleep(PAUSE_S)
    return True


def _ask(*command: str) -> str:
    """Return the output of a system program; empty text if it is missing or fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_ASK_WITHIN_S,
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
