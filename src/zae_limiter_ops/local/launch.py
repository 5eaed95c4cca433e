"""Start a server that outlives this process, and wait until it answers."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from zae_limiter_ops.local import FILE_MODE, HOST, LocalServerError, PortTakenError
from zae_limiter_ops.local.programs import ServerProgram

MAX_START_OUTPUT = 2**16  # bytes of a server's output that are searched for its announcement
QUOTED = 2000  # characters of this output in the error about a failed start
LOG_BYTES = 5 * 2**20  # a longer log is deleted at the next start
UMASK = 0o077  # only this user may read the files of a server

Process = subprocess.Popen[bytes]


def launch_detached(program: ServerProgram, port: int, log: Path) -> int:
    """Start a server that outlives this process and appends to the log; return its process id.

    If the server does not answer in time, it is killed and an error is raised. A log that has grown
    too long is deleted first.
    """
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.unlink()
    descriptor = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        began_at = os.fstat(descriptor).st_size
        process = spawn(program, port, descriptor, cwd=log.parent)
        try:
            wait_until_ready(
                program, port, process, lambda: os.pread(descriptor, MAX_START_OUTPUT, began_at)
            )
        except BaseException:
            process.kill()
            process.wait()
            raise
    finally:
        os.close(descriptor)
    # The server keeps running: a Popen without a return code would warn about that.
    process.returncode = 0
    return process.pid


def spawn(program: ServerProgram, port: int, output: int, cwd: Path | None = None) -> Process:
    """Start a server; ``output`` is the descriptor that it writes to."""
    # A session of its own protects the server from an interrupt at the keyboard.
    try:
        return subprocess.Popen(
            program.command(port),
            env=program.environment(port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=UMASK,
            cwd=cwd,
        )
    except OSError as error:
        raise LocalServerError(
            f"{program.binary} cannot be run ({error.strerror}); remove it, or name another one: "
            f"ZAEL_{program.name.upper()}=/path"
        ) from error


def wait_until_ready(
    program: ServerProgram, port: int, process: Process, read_output: Callable[[], bytes]
) -> None:
    """Wait until the server answers; ``read_output`` returns the output of the server so far."""
    give_up_at = time.monotonic() + program.started_within_s
    while time.monotonic() < give_up_at:
        ended = process.poll() is not None
        text = read_output()
        if ended:
            raise _start_error(program, port, text)
        if program.announcement in text and listens(port):
            return
        time.sleep(program.pause_s)
    raise LocalServerError(
        f"{program.name} did not answer within {program.started_within_s:g} s; run its command to "
        f"see why: {' '.join(program.command(port))}"
    )


def _start_error(program: ServerProgram, port: int, text: bytes) -> LocalServerError:
    if b"in use" in text:
        return PortTakenError(f"port {port} is taken by another program")
    end = text.decode(errors="replace").strip()[-QUOTED:]
    return LocalServerError(f"{program.name} ended: {end or 'it printed no reason'}")


def listens(port: int) -> bool:
    """Return whether a program accepts connections on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
