"""A ministack process on a port of its own: CloudFormation, Lambda, DynamoDB, IAM and S3.

What it does not do as AWS does is covered by assertions on the template (tests/unit/infra).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.support.local_server import HOST, LocalServer, ServerError, installed

PROGRAM = "ministack/bin/ministack"
REGION = "us-east-1"


class Ministack(LocalServer):
    """A control plane for tests; it forgets everything when it ends, with the block.

    ``auth`` makes it check signatures and rights; the key ``test`` may do everything.
    """

    started_within_s = 60.0  # imports a hundred modules, on a machine that may be busy
    pause_s = 0.02

    def __init__(self, *, auth: bool = False) -> None:
        super().__init__()
        self._auth = auth
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def command(self) -> list[str]:
        return [str(find_program())]

    def environment(self) -> dict[str, str]:
        """Functions inherit it: it holds nothing but what ministack itself needs."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="ministack-", ignore_cleanup_errors=True
            )
        return {
            "PATH": "/usr/bin:/bin",
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(self._port),
            "MINISTACK_HOST": HOST,
            "TMPDIR": self._folder.name,
            **({"AUTH": "true"} if self._auth else {}),
        }

    def stop(self) -> None:
        """End it with the functions that it runs; may be called twice."""
        super().stop()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


def find_program() -> Path:
    """``ZAEL_MINISTACK``, or what ``make tools`` installed here or in a folder above."""
    named = os.environ.get("ZAEL_MINISTACK")
    if named:
        return Path(named)
    for program in installed(PROGRAM):
        return program
    raise ServerError(
        "ministack, the control plane that tests run on, is not installed: run 'make tools', or "
        "set ZAEL_MINISTACK to its path"
    )
