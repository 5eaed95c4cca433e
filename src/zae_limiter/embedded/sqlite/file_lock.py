"""A lock that queues the processes that write to one file.

SQLite's own busy handler polls, and a polling process can starve beside busy ones. Here the kernel
queues the processes. Two locks form a turnstile: only the holder of the first lock waits for the
second, so at most one process can overtake the one that has waited longest.
"""

from __future__ import annotations

import _thread
import threading
import time
from pathlib import Path
from types import ModuleType

from zae_limiter.runtime.locks import renew_after_fork

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no flock on this platform: SQLite's busy handler orders the writers
    fcntl = None


# A kernel without a free lock (ENOLCK) is asked again after this time: it has one as soon as any
# process releases one.
RETRY_S = 0.02


class FileLock:
    """An exclusive lock between processes. Threads of one process must take another lock first."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stages: list[_Stage] = []
        if fcntl is not None:
            self._open()
            renew_after_fork(self)

    def acquire(self, deadline: float) -> bool:
        """Take the lock; False if it did not come until ``deadline`` (monotonic seconds).

        Raises OSError if the kernel refused the lock until then.
        """
        if fcntl is None:
            return True
        gate, lock = self._stages or self._open()
        try:
            return gate.take(deadline) and lock.take(deadline)
        finally:
            gate.give()

    def release(self) -> None:
        """Release the lock, also after an interrupted ``acquire``; a second time does nothing."""
        for stage in self._stages:
            stage.give()

    def close(self) -> None:
        for stage in self._stages:
            stage.close()
        self._stages = []

    def after_fork(self) -> None:
        """Close the files; the child opens them again when it writes.

        A child that kept them open would keep the lock of a killed parent.
        """
        for stage in self._stages:
            stage.file.close()
        self._stages = []

    def _open(self) -> list[_Stage]:
        self._stages = [_Stage(Path(self._path + suffix)) for suffix in ("-gate", "-lock")]
        return self._stages


class _Wait:
    """One place in the kernel's queue."""

    def __init__(self) -> None:
        self.wanted = True
        self.arrived = False
        self.error: OSError | None = None
        # Released on arrival. An Event would not do: its wait() is Python code, which an
        # interrupt can leave half done.
        self.signal = threading.Lock()
        self.signal.acquire()


class _Stage:
    """One flock. It has no timeout of its own, so a thread waits for it.

    There is at most one such thread. A caller that gives up leaves the thread in the kernel's
    queue, where the next caller finds it. A lock that arrives when no caller waits is given back.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file = path.open("ab", buffering=0)
        self._lock = threading.Lock()  # taken by `with` alone, which no interrupt can split
        self._held = False  # true before the flock is taken and until it has been given back
        self._waiting: _Wait | None = None
        self._closed = False

    def take(self, deadline: float) -> bool:
        """Take the lock; False if it did not come in time; OSError if the kernel refused it."""
        while True:
            try:
                return self._take(deadline)
            except OSError:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise
                time.sleep(min(left_s, RETRY_S))

    def _take(self, deadline: float) -> bool:
        with self._lock:
            self._held = True
            if self._waiting is None:
                if self._try():
                    return True
                self._queue_up()
            wait = self._waiting
            if wait is None:  # no thread could be started
                return False
            wait.wanted = True
        wait.signal.acquire(timeout=max(0.0, deadline - time.monotonic()))
        with self._lock:
            wait.wanted = False
            if wait.error is not None:
                raise wait.error
            return wait.arrived

    def give(self) -> None:
        """Release the lock, also after an interrupt somewhere in ``take``."""
        if not self._held:
            return
        with self._lock:
            if self._waiting is not None:
                self._waiting.wanted = False
            elif not self._closed:
                self._unlock()
            self._held = False

    def _unlock(self) -> None:
        try:
            self._flock("LOCK_UN")
        except OSError:
            self.file.close()  # releases the lock without asking; the next caller opens it again

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._waiting is None:
                self.file.close()

    def _queue_up(self) -> None:
        wait = _Wait()
        try:
            self._waiting = wait
            # Not threading.Thread: its start() waits for the thread in Python code, and after an
            # interrupt there it would be unknown whether the thread runs.
            _thread.start_new_thread(self._queue, (wait,))
        except RuntimeError:  # no more threads can be started
            self._waiting = None

    def _queue(self, wait: _Wait) -> None:
        try:
            self._flock("LOCK_EX")
        except OSError as error:  # raised in the caller that waits
            wait.error = error
        with self._lock:
            self._waiting = None
            if self._closed:
                self.file.close()
            elif wait.error is not None:
                wait.signal.release()
            elif wait.wanted:
                wait.arrived = True
                wait.signal.release()
            else:
                self._unlock()

    def _try(self) -> bool:
        try:
            self._flock("LOCK_EX", "LOCK_NB")
        except BlockingIOError:
            return False
        return True

    def _flock(self, *operations: str) -> None:
        assert fcntl is not None
        if self.file.closed:
            self.file = self._path.open("ab", buffering=0)
        fcntl.flock(self.file, sum(getattr(fcntl, operation) for operation in operations))
