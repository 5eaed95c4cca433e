"""A dynoxide process on a port of its own."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.local_server import HOST, LocalServer, ServerError, installed

BINARY = "node_modules/@dynoxide/*/dynoxide"


class DynamoServer(LocalServer):
    """DynamoDB for tests. In memory, or in a file that survives ``kill()`` and ``restart()``."""

    announcement = b"listening on"

    def __init__(self, db_path: Path | str | None = None) -> None:
        super().__init__()
        self._db_path = db_path

    def command(self) -> list[str]:
        command = [str(find_binary()), "serve", "--host", HOST, "--port", str(self._port)]
        if self._db_path is not None:
            command += ["--db-path", str(self._db_path)]
        return command

    def restart(self) -> None:
        """The same port again; what was in memory is gone."""
        self.stop()
        if not self._launch():
            raise ServerError(f"port {self._port} was taken by another program")

    def __exit__(self, *exc_info: object) -> None:
        self.kill() if self._db_path is None else self.stop()


def find_binary() -> Path:
    """``ZAEL_DYNOXIDE``, or what ``make tools`` installed here or in a folder above."""
    named = os.environ.get("ZAEL_DYNOXIDE")
    if named:
        if not os.access(named, os.X_OK):
            raise ServerError(f"ZAEL_DYNOXIDE={named} is not a program")
        return Path(named)
    for binary in installed(BINARY):
        return binary
    raise ServerError(
        "dynoxide, the DynamoDB-compatible server that tests run on, is not installed: run "
        "'make tools', or set ZAEL_DYNOXIDE to its path or ZAEL_TEST_ENDPOINT to a server"
    )
