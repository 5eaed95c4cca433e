"""Writes what a server says to its log, and keeps the log small.

Run as a program of its own, beside the server: ``python -I -S keeper.py LOG BYTES``, with the
server's output as its input. It ends when the server and all processes that it started have. At
BYTES the log becomes ``LOG.1``, in place of the one before, and a new one begins: so both together
never take more than twice as much.

It imports the standard library alone, not even this package, and starts in a few milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys

CHUNK = 2**16  # what a pipe holds on Linux
OLDER = ".1"


class BoundedLog:
    """A file that is continued, and replaced by an empty one when it is full."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._descriptor = -1
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)

    def write(self, text: bytes) -> None:
        """Append the text; begin a new file first if this one would get too long."""
        if os.fstat(self._descriptor).st_size + len(text) > self._max_bytes:
            self.close()
            os.replace(self._path, self._path + OLDER)  # noqa: PTH105 - imports as little as it can
            self._open()
        while text:
            text = text[os.write(self._descriptor, text) :]

    def close(self) -> None:
        """Close the file; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def main(path: str, max_bytes: int) -> None:
    # It ends with the server, not before: a server without a reader may fail when it writes.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    log: BoundedLog | None = None
    while text := os.read(0, CHUNK):
        try:
            log = log or BoundedLog(path, max_bytes)
            log.write(text)
        except OSError:  # a full disk or a removed folder: the server goes on without a log
            if log is not None:
                log.close()
            log = None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
