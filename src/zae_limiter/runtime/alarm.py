"""Alarms: they make a call at a later moment, in a task of an event loop or in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from zae_limiter.runtime.locks import renew_after_fork

if TYPE_CHECKING:
    import asyncio


class AAlarm:
    """Rings in a task of the event loop that it was made in. Until then it is only a timer."""

    def __init__(
        self, ring: Callable[[], Coroutine[Any, Any, None]], name: str = "zael-slots"
    ) -> None:
        import asyncio

        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # a loop itself refers to its tasks weakly

    @staticmethod
    def owner() -> object:
        """Return the owner of an alarm that is made here: the running event loop."""
        import asyncio

        return asyncio.get_running_loop()

    @property
    def is_dead(self) -> bool:
        """Tell whether the alarm can never ring again, because its event loop was closed."""
        return self._loop.is_closed()

    def set(self, seconds: float) -> None:
        """Ring after that time, or earlier if it was set so before. Call this in its own loop."""
        at = self._loop.time() + max(seconds, 0.0)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._start)

    def stop(self) -> None:
        """Do not ring any more; a call in progress ends by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._timer = None
        task = self._loop.create_task(self._ring())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Alarm:
    """Rings in a daemon thread, or a greenlet, which ends when the alarm is not set."""

    def __init__(self, ring: Callable[[], None], name: str = "zael-slots") -> None:
        self._ring = ring
        self._thread_name = name
        self._at: float | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()  # re-entrant, since a signal handler may set it
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start again: the child does not have the thread."""
        self._changed = threading.Condition()
        self._at, self._thread = None, None

    @staticmethod
    def owner() -> object:
        """Return the owner of an alarm that is made here; None stands for the process."""
        return None

    @property
    def is_dead(self) -> bool:
        return False

    def set(self, seconds: float) -> None:
        """Ring after that time, or earlier if it was set so before."""
        at = time.monotonic() + max(seconds, 0.0)
        with self._changed:
            if self._at is None or at < self._at:
                self._at = at
                self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, daemon=True, name=self._thread_name
                )
                self._thread.start()

    def stop(self) -> None:
        """Do not ring any more; a call in progress ends by itself."""
        with self._changed:
            self._at = None
            self._changed.notify()

    def _run(self) -> None:
        try:
            while self._wait():
                self._ring_once()
        except BaseException:
            self._thread = None  # the next call of `set` starts another thread
            raise

    def _ring_once(self) -> None:
        """Ring, and go on after any error, even after `sys.exit` in a callback of the user.

        Ctrl-C is never raised here, since only the main thread gets it.
        """
        try:
            self._ring()
        except BaseException:  # noqa: BLE001 - the thread must outlive any call
            # Imported here, so that `import zae_limiter` does not import logging.
            from zae_limiter.quiet_logging import quiet_logger

            quiet_logger(__name__).exception("a call in the background has failed")

    def _wait(self) -> bool:
        """Wait until it is time to ring; return False, which ends the thread, if no time is set."""
        with self._changed:
            while self._at is not None:
                left = self._at - time.monotonic()
                if left <= 0:
                    self._at = None
                    return True
                self._changed.wait(left)
            self._thread = None
            return False
