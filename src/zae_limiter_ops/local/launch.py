"""Start a server process and wait until it answers, for a block or detached."""

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
MAX_START_OUTPUT = 2**16  # bytes of a server's output that are searched for its announcement
QUOTED = 2000  # characters of this output in the error about a failed start
LOG_BYTES = 5 * 2**20  # a longer log is deleted at the next start
UMASK = 0o077  # only this user may read the files of a server

Process = subprocess.Popen[bytes]


class ChildServer:
    """A server on a free port. It ends with its block, or with this process at the latest."""

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
        """Start the server on a free port and wait until it answers."""
        for _ in range(PORTS_TRIED):
            self._port = free_port()
            try:
                self._launch()
            except PortTakenError:
                continue
            return self
        raise LocalServerError(
            f"{self.program.name} found no free port in {PORTS_TRIED} attempts; start it again"
        )

    def restart(self) -> None:
        """Start the server again on the same port; data in memory is lost."""
        self.stop()
        self._launch()

    def kill(self) -> None:
        """End the server at once, without a chance to finish, like a power cut."""
        self._end(gently=False)

    def stop(self) -> None:
        """End the server gently; a second call does nothing."""
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
                    lambda: os.pread(log.fileno(), MAX_START_OUTPUT, 0),
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
    """Start a server that outlives this process and appends to the log; return its process id.

    If the server does not answer in time, it is killed and an error is raised. A log that has grown
    too long is deleted first.
    """
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.unlink()
    descriptor = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        began_at = os.fstat(descriptor).st_size
        process = _spawn(program, port, descriptor, cwd=log.parent)
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


def _spawn(program: ServerProgram, port: int, output: int, cwd: Path | None = None) -> Process:
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


def _guard(pid: int) -> Process:
    """Start a shell that kills the server when this process ends, which closes the pipe."""
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
    """Return whether a program accepts connections on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
