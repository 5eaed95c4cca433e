"""Orders the processes that write to one file.

SQLite's own busy handler polls, and a process that polls can starve beside busy ones. Here the
kernel queues them. Two locks form a turnstile: whoever holds the first waits for the second, so
at most one process can overtake the one that waits longest.
"""

from __future__ import annotations

import os
import threading
import time
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no flock on this platform: SQLite's busy handler orders the writers
    fcntl = None


class FileLock:
    """An exclusive lock between processes. Not for threads: callers take a real lock first."""

    def __init__(self, path: str) -> None:
        self._stages: list[_Stage] = []
        if fcntl is not None:
            self._stages = [_Stage(path + suffix) for suffix in ("-gate", "-lock")]

    def acquire(self, deadline: float) -> bool:
        """False if the lock could not be had until ``deadline`` (monotonic seconds)."""
        if not self._stages:
            return True
        gate, lock = self._stages
        try:
            return gate.take(deadline) and lock.take(deadline)
        finally:
            gate.give()

    def release(self) -> None:
        """Let go, also of what an interrupted ``acquire`` left; may be called twice."""
        for stage in self._stages:
            stage.give()

    def close(self) -> None:
        for stage in self._stages:
            stage.close()
        self._stages = []


class _Stage:
    """One flock. It knows no timeout of its own, so waiting for it is done in a thread.

    There is at most one such thread: a caller that gives up leaves it in the kernel's queue, and
    the next caller finds it there. A lock that nobody wants any more is given back.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._changed = threading.Condition()
        self._held = False  # true before the lock is taken and until it has been given back
        self._queued = False
        self._wanted = False
        self._closed = False

    def take(self, deadline: float) -> bool:
        with self._changed:
            self._held = True
            if not self._queued:
                if self._try():
                    return True
                self._queued = True
                threading.Thread(target=self._queue, daemon=True, name="zael-file-lock").start()
            self._wanted = True
            try:
                left = max(0.0, deadline - time.monotonic())
                return self._changed.wait_for(lambda: not self._queued, left)
            finally:
                self._wanted = False

    def give(self) -> None:
        """Let go of it, also after an interrupt somewhere in ``take``."""
        assert fcntl is not None
        if not self._held:
            return
        with self._changed:
            if not self._queued and not self._closed:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._held = False

    def close(self) -> None:
        with self._changed:
            self._closed = True
            if not self._queued:
                os.close(self._file)

    def _try(self) -> bool:
        assert fcntl is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _queue(self) -> None:
        assert fcntl is not None
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._changed:
            self._queued = False
            if self._closed:
                os.close(self._file)
            elif self._wanted:
                self._changed.notify()
            else:
                fcntl.flock(self._file, fcntl.LOCK_UN)
