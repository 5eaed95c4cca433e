"""A server for tests on a free port, which ends with them."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from typing import Self

from zae_limiter_ops.local import HOST, LocalServerError, PortTakenError, server_url
from zae_limiter_ops.local.launch import MAX_START_OUTPUT, Process, spawn, wait_until_ready
from zae_limiter_ops.local.processes import END_WITHIN_S
from zae_limiter_ops.local.programs import ServerProgram

PORTS_TRIED = 5  # another program may take the free port before the server does


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
            process = spawn(self.program, self._port, log.fileno())
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
