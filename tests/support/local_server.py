"""A server that tests start as a process of their own, on a free port."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

HOST = "127.0.0.1"
PORTS_TRIED = 5  # another program may take the free port before the server does
END_WITHIN_S = 10.0  # then it is killed
LONGEST_LOG = 2**16  # bytes, of a server that has not started yet


class ServerError(RuntimeError):
    """The server is not installed or does not start; the text says what to do."""


class LocalServer:
    """A process that ends with the block, and also when the process that started it is killed."""

    started_within_s = 10.0
    pause_s = 0.005  # between looks whether it answers
    announcement = b""  # what it says when it is ready, besides listening

    def __init__(self) -> None:
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the program and its arguments, for ``self._port``."""
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        """Return the variables that it sees; None for those of this process."""
        return None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process.pid

    def start(self) -> Self:
        """Return when it answers."""
        for _ in range(PORTS_TRIED):
            self._port = _free_port()
            if self._launch():
                return self
        raise ServerError(f"{self.command()[0]} found no free port")

    def kill(self) -> None:
        """As a power cut does it: nothing is finished."""
        self._end(gently=False)

    def stop(self) -> None:
        """Let it finish; may be called twice."""
        self._end(gently=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _launch(self) -> bool:
        """False if the port is taken."""
        with tempfile.TemporaryFile() as log:
            # In a session of its own, so that an interrupt at the keyboard does not end it first.
            process = subprocess.Popen(
                self.command(),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._process, self._guard = process, _guard(process.pid)
            try:
                return self._wait(process, log)
            except BaseException:
                self.kill()
                raise

    def _wait(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> bool:
        give_up_at = time.monotonic() + self.started_within_s
        while time.monotonic() < give_up_at:
            said = os.pread(log.fileno(), LONGEST_LOG, 0)
            if process.poll() is not None:
                self.kill()
                if b"in use" in said:
                    return False
                end = said.decode(errors="replace")[-2000:]
                raise ServerError(f"{process.args!r} ended: {end}")
            if self.announcement in said and _listens(self._port):
                return True
            time.sleep(self.pause_s)
        raise ServerError(f"{process.args!r} did not answer within {self.started_within_s:g} s")

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


def installed(pattern: str) -> Iterator[Path]:
    """Yield what ``make tools`` installed here or in a folder above."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        yield from sorted((folder / ".tools").glob(pattern))


def _guard(pid: int) -> subprocess.Popen[bytes]:
    """Kills the server when this process is gone, which closes the pipe."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read -r _; kill -9 {pid}"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
