"""Processes of this machine: whether one still runs, how it is ended, and which holds a port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

END_WITHIN_S = 10.0  # then it is killed
PAUSE_S = 0.01
LONGEST_COMMAND = 120  # characters of a command line that a message quotes
_PROC = Path("/proc")
_LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp
_ASK_WITHIN_S = 5.0  # ps and lsof, on a machine that may be busy


def start_token(pid: int) -> str | None:
    """Return what tells a process from a later one with the same number; None if it has ended.

    On Linux the time of its start since boot, and the boot; elsewhere the time of day.
    """
    with suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)  # our own child that has ended stays in the list until then
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
    fields = stat.rpartition(")")[2].split()  # the name before it may contain anything
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def is_running(pid: int, token: str) -> bool:
    """Whether that very process still runs, not another one with its number."""
    return start_token(pid) == token


def end(pid: int, token: str, *, within_s: float = END_WITHIN_S) -> bool:
    """End a process that leads its own group; return False if it had ended before.

    It is asked first; after ``within_s`` it is killed, with the processes that it started.
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


# --- ports -----------------------------------------------------------------------------------


def port_holder(port: int) -> str:
    """Return which process listens on a port, as a phrase for a message."""
    pid = _pid_by_proc(port) if sys.platform == "linux" else None
    pid = pid or _pid_by_lsof(port)
    if pid is None:
        return "a process that this user cannot see"
    command = command_of(pid)
    return f"process {pid} ({command})" if command else f"process {pid}"


def command_of(pid: int) -> str:
    """Return the command line of a process, shortened; empty if it cannot be read."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        text = " ".join(word.decode(errors="replace") for word in words).strip()
    except OSError:
        text = _ask("ps", "-o", "command=", "-p", str(pid)).strip()
    return text if len(text) <= LONGEST_COMMAND else text[: LONGEST_COMMAND - 3] + "..."


def _pid_by_proc(port: int) -> int | None:
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for process in _PROC.iterdir():
        with suppress(OSError):  # of another user, or gone since
            if process.name.isdigit() and any(
                str(descriptor.readlink()) in sockets for descriptor in (process / "fd").iterdir()
            ):
                return int(process.name)
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return inodes


def _pid_by_lsof(port: int) -> int | None:
    lines = _ask("lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fp").splitlines()
    pids = [line[1:] for line in lines if line.startswith("p") and line[1:].isdigit()]
    return int(pids[0]) if pids else None


def _ask(*command: str) -> str:
    """Return what a program of the system prints; nothing if it is missing or fails."""
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
