"""A dynoxide process on a port of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
STARTED_WITHIN_S = 10.0
PORTS_TRIED = 5
PAUSE_S = 0.005
BINARY = "node_modules/@dynoxide/*/dynoxide"
ANNOUNCEMENT = b"listening on"


class ServerError(RuntimeError):
    """The server is not installed or does not start; the text says what to do."""


class DynamoServer:
    """DynamoDB for tests. In memory, or in a file that survives ``kill()`` and ``restart()``.

    It ends with the block, and also when the process that started it is killed.
    """

    def __init__(self, db_path: Path | str | None = None) -> None:
        self._db_path = db_path
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process.pid

    def start(self) -> DynamoServer:
        """Return when it answers."""
        binary = find_binary()
        for _ in range(PORTS_TRIED):
            self._port = _free_port()
            if self._launch(binary):
                return self
        raise ServerError(f"{binary} found no free port")

    def restart(self) -> None:
        """The same port again; what was in memory is gone."""
        self.stop()
        if not self._launch(find_binary()):
            raise ServerError(f"port {self._port} was taken by another program")

    def kill(self) -> None:
        """As a power cut does it: nothing is finished."""
        self._end(gently=False)

    def stop(self) -> None:
        """Let it finish; may be called twice."""
        self._end(gently=True)

    def __enter__(self) -> DynamoServer:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.kill() if self._db_path is None else self.stop()

    def _launch(self, binary: Path) -> bool:
        """False if the port is taken."""
        command = [str(binary), "serve", "--host", HOST, "--port", str(self._port)]
        if self._db_path is not None:
            command += ["--db-path", str(self._db_path)]
        with tempfile.TemporaryFile() as log:
            # In a session of its own, so that an interrupt at the keyboard does not end it first.
            process = subprocess.Popen(
                command,
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
        give_up_at = time.monotonic() + STARTED_WITHIN_S
        while time.monotonic() < give_up_at:
            said = os.pread(log.fileno(), 4096, 0)
            if process.poll() is not None:
                self.kill()
                if b"in use" in said:
                    return False
                raise ServerError(f"{process.args!r} ended: {said.decode(errors='replace')}")
            if ANNOUNCEMENT in said and _listens(self._port):
                return True
            time.sleep(PAUSE_S)
        raise ServerError(f"{process.args!r} did not answer within {STARTED_WITHIN_S:g} s")

    def _end(self, *, gently: bool) -> None:
        guard, process = self._guard, self._process
        self._guard = self._process = None
        if guard is not None:
            guard.kill()
            guard.communicate()
        if process is not None:
            process.terminate() if gently else process.kill()
            process.wait()


def find_binary() -> Path:
    """``ZAEL_DYNOXIDE``, or what ``make tools`` installed here or in a folder above."""
    named = os.environ.get("ZAEL_DYNOXIDE")
    if named:
        if not os.access(named, os.X_OK):
            raise ServerError(f"ZAEL_DYNOXIDE={named} is not a program")
        return Path(named)
    for found in _installed():
        return found
    raise ServerError(
        "dynoxide, the DynamoDB-compatible server that tests run on, is not installed: run "
        "'make tools', or set ZAEL_DYNOXIDE to its path or ZAEL_TEST_ENDPOINT to a server"
    )


def _installed() -> Iterator[Path]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        yield from sorted((folder / ".tools").glob(BINARY))


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
