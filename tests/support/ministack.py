"""A ministack process on a port of its own: CloudFormation, Lambda, DynamoDB, IAM and S3.

What it does not do as AWS does is covered by assertions on the template (tests/unit/infra).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.dynamodb.server import HOST, ServerError, _free_port, _guard, _listens

STARTED_WITHIN_S = 60.0  # imports a hundred modules, on a machine that may be busy
PAUSE_S = 0.02
PROGRAM = "ministack/bin/ministack"
REGION = "us-east-1"


class Ministack:
    """A control plane for tests; it forgets everything when it ends, with the block.

    ``auth`` makes it check signatures and rights; the key ``test`` may do everything.
    """

    def __init__(self, *, auth: bool = False) -> None:
        self._auth = auth
        self._port = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def start(self) -> Ministack:
        """Return when it answers."""
        program, self._port = find_program(), _free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="ministack-", ignore_cleanup_errors=True)
        # Functions inherit the environment: it holds nothing but what ministack itself needs.
        environment = {
            "PATH": "/usr/bin:/bin",
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(self._port),
            "MINISTACK_HOST": HOST,
            "TMPDIR": self._folder.name,
            **({"AUTH": "true"} if self._auth else {}),
        }
        with (Path(self._folder.name) / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(program)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard = _guard(self._process.pid)
        self._wait()
        return self

    def stop(self) -> None:
        """End it with the functions that it runs; may be called twice."""
        guard, process = self._guard, self._process
        self._guard = self._process = None
        if guard is not None:
            guard.kill()
            guard.communicate()
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Ministack:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _wait(self) -> None:
        assert self._process is not None
        give_up_at = time.monotonic() + STARTED_WITHIN_S
        while time.monotonic() < give_up_at:
            if self._process.poll() is not None:
                raise ServerError(f"ministack ended: {self._log()}")
            if _listens(self._port):
                return
            time.sleep(PAUSE_S)
        self.stop()
        raise ServerError(f"ministack did not answer within {STARTED_WITHIN_S:g} s")

    def _log(self) -> str:
        assert self._folder is not None
        return (Path(self._folder.name) / "log").read_text(errors="replace")[-2000:]


def find_program() -> Path:
    """``ZAEL_MINISTACK``, or what ``make tools`` installed here or in a folder above."""
    named = os.environ.get("ZAEL_MINISTACK")
    if named:
        return Path(named)
    for program in _installed():
        return program
    raise ServerError(
        "ministack, the control plane that tests run on, is not installed: run 'make tools', or "
        "set ZAEL_MINISTACK to its path"
    )


def _installed() -> Iterator[Path]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        program = folder / ".tools" / PROGRAM
        if program.exists():
            yield program
