"""Start a server as a process and wait until it answers: for a block, or to be left running."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from zae_limiter_ops.local import FILE_MODE, HOST, LocalServerError, PortTakenError, server_url
from zae_limiter_ops.local.processes import END_WITHIN_S
from zae_limiter_ops.local.programs import ServerProgram

PORTS_TRIED = 5  # another program may take the free port before the server does
LONGEST_START = 2**16  # bytes that a server says before it is ready
QUOTED = 2000  # of these, in the message about one that has failed
LOG_BYTES = 5 * 2**20  # a longer log is begun anew at the next start
UMASK = 0o077  # what a server writes is for this user only

Process = subprocess.Popen[bytes]


class ChildServer:
    """A server on a free port that ends with the block, and also with the process around it."""

    def __init__(self, program: ServerProgram) -> None:
        self.program = program
        self._port = 0
        self._process: Process | None = None
        self._guard: Process | None = None

    @property
    def url(self) -> str:
        return server_url(self._port)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise LocalServerError("the server is not running")
        return self._process.pid

    def start(self) -> Self:
        """Return when it answers."""
        for _ in range(PORTS_TRIED):
            self._port = free_port()
            try:
                self._launch()
            except PortTakenError:
                continue
            return self
        raise LocalServerError(f"{self.program.name} found no free port")

    def restart(self) -> None:
        """Start it again on the same port; what was in memory is gone."""
        self.stop()
        self._launch()

    def kill(self) -> None:
        """End it as a power cut does: nothing is finished."""
        self._end(gently=False)

    def stop(self) -> None:
        """Let it finish; may be called twice."""
        self._end(gently=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _launch(self) -> None:
        with tempfile.TemporaryFile() as log:
            process = _spawn(self.program, self._port, log.fileno())
            self._process, self._guard = process, _guard(process.pid)
            try:
                wait_until_ready(
                    self.program,
                    self._port,
                    process,
                    lambda: os.pread(log.fileno(), LONGEST_START, 0),
                )
            except BaseException:
                self.kill()
                raise

    def _end(self, *, gently: bool) -> None:
        guard, process = self._guard, self._process
        self._guard = self._process = None
        if guard is not None:
            guard.kill()
            guard.communicate()
        if process is None:
            return
        if gently:
            process.terminate()
            try:
                process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                pass
            else:
                return
        process.kill()
        process.wait()


def launch_detached(program: ServerProgram, port: int, log: Path) -> int:
    """Start a server that outlives this process and appends to its log; return its process id.

    Raises if it does not answer in time; then nothing is left running. A log that has grown too
    long begins anew.
    """
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.unlink()
    descriptor = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        began_at = os.fstat(descriptor).st_size
        process = _spawn(program, port, descriptor, cwd=log.parent)
        try:
            wait_until_ready(
                program, port, process, lambda: os.pread(descriptor, LONGEST_START, began_at)
            )
        except BaseException:
            process.kill()
            process.wait()
            raise
    finally:
        os.close(descriptor)
    # The server is left to itself: a Popen without a return code would warn about that.
    process.returncode = 0
    return process.pid


def _spawn(program: ServerProgram, port: int, output: int, cwd: Path | None = None) -> Process:
    # In a session of its own, so that an interrupt at the keyboard does not end it.
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
    program: ServerProgram, port: int, process: Process, said: Callable[[], bytes]
) -> None:
    """Return when the server answers; ``said`` returns what it has printed so far."""
    give_up_at = time.monotonic() + program.started_within_s
    while time.monotonic() < give_up_at:
        ended = process.poll() is not None
        text = said()
        if ended:
            raise _start_error(program, port, text)
        if program.announcement in text and listens(port):
            return
        time.sleep(program.pause_s)
    raise LocalServerError(
        f"{program.name} did not answer within {program.started_within_s:g} s: "
        f"{' '.join(program.command(port))}"
    )


def _start_error(program: ServerProgram, port: int, text: bytes) -> LocalServerError:
    if b"in use" in text:
        return PortTakenError(f"port {port} is taken by another program")
    end = text.decode(errors="replace").strip()[-QUOTED:]
    return LocalServerError(f"{program.name} ended: {end or 'it said nothing'}")


def _guard(pid: int) -> Process:
    """Kill the server when this process is gone, which closes the pipe."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read -r _; kill -9 {pid:d}"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether a program accepts connections on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
