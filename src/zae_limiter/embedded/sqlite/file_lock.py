"""Orders the processes that write to one file.

SQLite's own busy handler polls, and a process that polls can starve beside busy ones. Here the
kernel queues them. Two locks form a turnstile: whoever holds the first waits for the second, so
at most one process can overtake the one that waits longest.
"""

from __future__ import annotations

import os
import threading
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no flock on this platform: SQLite's busy handler orders the writers
    fcntl = None


class FileLock:
    """An exclusive lock between processes. Not for threads: callers take a real lock first."""

    def __init__(self, path: str) -> None:
        self._files: list[int] = []
        if fcntl is not None:
            self._files = [_open(path + suffix) for suffix in ("-gate", "-lock")]

    def acquire(self, timeout_s: float) -> bool:
        """False if the lock could not be had in time."""
        for position, file in enumerate(self._files):
            if not _take(file, timeout_s):
                if position:
                    _give(self._files[0])
                return False
        if self._files:
            _give(self._files[0])
        return True

    def release(self) -> None:
        if self._files:
            _give(self._files[1])

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _take(file: int, timeout_s: float) -> bool:
    assert fcntl is not None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _Waiter(file).wait(timeout_s)
    return True


def _give(file: int) -> None:
    assert fcntl is not None
    fcntl.flock(file, fcntl.LOCK_UN)


class _Waiter:
    """Waits in the kernel's queue, in a thread of its own: flock itself knows no timeout.

    If the caller gives up, the thread gives the lock back as soon as it gets it.
    """

    def __init__(self, file: int) -> None:
        self._file = os.dup(file)  # the same lock; stays valid when the caller closes its own
        self._lock = threading.Lock()
        self._taken = threading.Event()
        self._given_up = False

    def wait(self, timeout_s: float) -> bool:
        threading.Thread(target=self._queue, daemon=True, name="zael-file-lock").start()
        if self._taken.wait(timeout_s):
            return True
        with self._lock:
            self._given_up = not self._taken.is_set()
            return not self._given_up

    def _queue(self) -> None:
        assert fcntl is not None
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._lock:
            if self._given_up:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            else:
                self._taken.set()
        os.close(self._file)
