"""A bounded number of threads for calls that block."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from zae_limiter.concurrency.fork import renew_after_fork

T = TypeVar("T")

_Inbox = SimpleQueue[T | None]


class Crew(Generic[T]):
    """Each job goes to the thread that was idle last, else to a new one, else it waits.

    The threads are daemons, so a job that hangs does not keep the program from ending, and
    end after a while without work.
    """

    def __init__(self, work: Callable[[T], None], most: int, idle_s: float) -> None:
        self._work = work
        self._most = most
        self._idle_s = idle_s
        self._closed = False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Threads are the parent's."""
        self._lock = threading.RLock()
        self._count = 0
        self._idle: list[_Inbox[T]] = []
        self._waiting: deque[T] = deque()

    def take(self, job: T) -> bool:
        """False once closed."""
        with self._lock:
            if self._closed:
                return False
            alone = sys.is_finalizing()  # no other thread runs any more
            if alone:
                pass
            elif self._idle:
                self._idle.pop().put(job)
            elif self._count >= self._most or not self._start(job):
                alone = not self._count
                if not alone:
                    self._waiting.append(job)
        if alone:
            self._work(job)
        return True

    def close(self) -> None:
        """Threads end when they have done what waits."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _start(self, job: T) -> bool:
        """False if the system has no more threads, or the program is about to end."""
        inbox: _Inbox[T] = SimpleQueue()
        inbox.put(job)
        thread = threading.Thread(target=self._run, args=(inbox,), daemon=True, name="zael-sdk")
        try:
            thread.start()
        except RuntimeError:
            return False
        self._count += 1
        return True

    def _run(self, inbox: _Inbox[T]) -> None:
        job = self._next_handed(inbox)
        while job is not None:
            self._work(job)
            job = None  # holds on to nothing while it waits
            job = self._next(inbox)

    def _next(self, inbox: _Inbox[T]) -> T | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                self._count -= 1
                return None
            self._idle.append(inbox)
        return self._next_handed(inbox)

    def _next_handed(self, inbox: _Inbox[T]) -> T | None:
        try:
            return inbox.get(timeout=self._idle_s)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    self._count -= 1
                    return None
            return inbox.get()  # handed over in the last moment
