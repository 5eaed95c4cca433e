"""A ministack process on a port of its own: CloudFormation, Lambda, DynamoDB, IAM and S3.

What it does not do as AWS does is covered by assertions on the template (tests/ops/infra).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.support.child_server import ChildServer
from zae_limiter_ops.local import REGION, LocalServerError, installs
from zae_limiter_ops.local.programs import MinistackProgram

__all__ = ["REGION", "Ministack"]


class Ministack(ChildServer):
    """A control plane for tests; it forgets everything when it ends, with the block.

    ``auth`` makes it check signatures and rights; the key ``test`` may do everything.
    """

    def __init__(self, *, auth: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ministack-", ignore_cleanup_errors=True)
        super().__init__(MinistackProgram(find_program(), self._folder.name, auth=auth))

    def stop(self) -> None:
        """End it with the functions that it runs; may be called twice."""
        super().stop()
        self._folder.cleanup()


def find_program() -> Path:
    """``ZAEL_MINISTACK``, or what ``make tools`` installed."""
    program = installs.named_program("ZAEL_MINISTACK") or installs.in_checkout(
        installs.MINISTACK_BINARY
    )
    if program is not None:
        return program
    raise LocalServerError(
        "ministack, the control plane that tests run on, is not installed: run 'make tools', or "
        "set ZAEL_MINISTACK to its path"
    )
