"""The log of a server, which ``keeper`` writes: its last lines, and those that follow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from zae_limiter.local.keeper import OLDER

PAUSE_S = 0.1  # between looks whether there is more
CHUNK = 2**16


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log; of both files of it, where the newer one is short."""
    with Follower(log) as follower:
        return follower.last_lines(count)


class Follower:
    """Reads a log up to its present end, and then what is appended.

    The file stays open, so that nothing is read twice or left out while lines are added, or while
    a full log is replaced by an empty one.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        try:
            self._file = self._log.open("rb", buffering=0)
        except FileNotFoundError:
            self._file = None

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines up to the present end, which is where ``follow`` goes on."""
        text = self._older() + (b"" if self._file is None else _rest(self._file))
        lines = text.decode(errors="replace").splitlines()
        return lines[max(0, len(lines) - count) :]

    def _older(self) -> bytes:
        """Return the file before this one, unless this one has become it just now."""
        older = self._log.with_name(self._log.name + OLDER)
        try:
            return b"" if self._is_open(older) else older.read_bytes()
        except FileNotFoundError:
            return b""

    def follow(self, is_running: Callable[[], bool]) -> Iterator[str]:
        """Yield what is appended, as it comes; end when the server has ended."""
        while True:
            runs = is_running()  # before the last look, so that its last words are read
            if self._file is None:
                self._open()
            while self._file is not None and (text := self._file.read(CHUNK)):
                yield text.decode(errors="replace")
            if self._is_replaced():
                self._open_next()
            elif not runs:
                return
            else:
                time.sleep(PAUSE_S)

    def _is_replaced(self) -> bool:
        """Whether the log was full, and a new one has begun."""
        try:
            return self._file is not None and not self._is_open(self._log)
        except FileNotFoundError:
            return False

    def _is_open(self, path: Path) -> bool:
        found = path.stat()
        return self._file is not None and os.path.samestat(found, os.fstat(self._file.fileno()))

    def _open_next(self) -> None:
        if self._file is not None:
            self._file.close()
        self._open()


def _rest(file: IO[bytes]) -> bytes:
    return b"".join(iter(lambda: file.read(CHUNK), b""))
