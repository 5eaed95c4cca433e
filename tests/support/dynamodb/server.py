"""A dynoxide process on a port of its own."""

from __future__ import annotations

from pathlib import Path

from tests.support.child_server import ChildServer
from zae_limiter_ops.local import LocalServerError as ServerError
from zae_limiter_ops.local import installs
from zae_limiter_ops.local.programs import DynoxideProgram

__all__ = ["DynamoServer", "ServerError", "find_binary"]


class DynamoServer(ChildServer):
    """DynamoDB for tests. In memory, or in a file that survives ``kill()`` and ``restart()``."""

    def __init__(self, db_path: Path | str | None = None) -> None:
        super().__init__(DynoxideProgram(find_binary(), db_path))
        self._is_durable = db_path is not None

    def __exit__(self, *exc_info: object) -> None:
        self.stop() if self._is_durable else self.kill()


def find_binary(tools: Path | None = None) -> Path:
    """``ZAEL_DYNOXIDE``, or what ``make tools`` installed: the version that is tested with."""
    binary = installs.named_program("ZAEL_DYNOXIDE") or installs.in_checkout(
        installs.DYNOXIDE_BINARY, tools
    )
    if binary is not None:
        return binary
    raise ServerError(
        "dynoxide, the DynamoDB-compatible server that tests run on, is not installed: run "
        "'make tools', or set ZAEL_DYNOXIDE to its path or ZAEL_TEST_ENDPOINT to a server"
    )
