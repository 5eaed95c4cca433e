"""The record of a server, which commands read, and change under a lock."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from zae_limiter.bounded_json import parse_bounded
from zae_limiter_ops.local import FILE_MODE, LocalServerError, private_folder

LOCKED_WITHIN_S = 900.0  # another command may be fetching a server over a slow network
LOCK_PAUSE_S = 0.05
MAX_RECORD_BYTES = 1_000_000  # a record has about 400 bytes, and a few for each limiter


class ServerRecord(NamedTuple):
    """The facts about a server that was started.

    ``pid`` and ``token`` identify its process; both are None after the server was stopped. ``data``
    is the file that keeps the tables, or None if the server keeps them in memory. ``stacks`` are
    the provisioned limiters, the latest last.
    """

    engine: str
    version: str
    port: int
    started_at_ms: int
    health_path: str
    has_stacks: bool
    pid: int | None = None
    token: str | None = None
    data: str | None = None
    stacks: tuple[str, ...] = ()

    @property
    def was_left_running(self) -> bool:
        """Whether no command has stopped the server; it may still have ended by itself."""
        return self.pid is not None

    def with_stack(self, name: str) -> ServerRecord:
        others = tuple(stack for stack in self.stacks if stack != name)
        return self._replace(stacks=(*others, name))


class RecordFile:
    """The file with the record of this user's server; a write replaces the whole file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> ServerRecord | None:
        """Return the record; None if there is no readable record."""
        try:
            with self.path.open(encoding="utf-8") as file:
                text = file.read(MAX_RECORD_BYTES + 1)
            return _parsed(parse_bounded(text, longest=MAX_RECORD_BYTES))
        # The file is missing, of another version, cut off by a full disk, or not a record.
        except (OSError, ValueError, TypeError, LookupError):
            return None

    def write(self, record: ServerRecord) -> None:
        temporary = self.path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, FILE_MODE), "w", encoding="utf-8") as file:
            json.dump(record._asdict(), file, indent=2)
        temporary.replace(self.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _parsed(fields: Any) -> ServerRecord:
    record = ServerRecord(**{**fields, "stacks": tuple(fields["stacks"])})
    # A wrong pid must never get a signal: 0 and -1 mean many processes.
    is_process = type(record.pid) is int and record.pid > 0 and isinstance(record.token, str)
    if type(record.port) is not int or not (record.pid is None or is_process):
        raise ValueError("not a record of a process")
    return record


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a lock for the block; the lock ends with this process at the latest.

    ``on_wait`` is called once if another process holds the lock.
    """
    import fcntl  # Windows has no such module, and must still import this one

    private_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        give_up_at = time.monotonic() + LOCKED_WITHIN_S
        has_waited = False
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > give_up_at:
                raise LocalServerError(
                    f"another command has held the lock {path} for {LOCKED_WITHIN_S / 60:.0f} "
                    "minutes; end that command, and run this one again"
                )
            if not has_waited:
                on_wait()
                has_waited = True
            time.sleep(LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)
