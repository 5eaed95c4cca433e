"""Calls at a later moment that no caller waits for: in a task of an event loop, or in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from zae_limiter.concurrency.locks import renew_after_fork

if TYPE_CHECKING:
    import asyncio


class AAlarm:
    """Rings in a task of the event loop that it was made in. Nothing is left of it in between."""

    def __init__(
        self, ring: Callable[[], Coroutine[Any, Any, None]], name: str = "zael-slots"
    ) -> None:
        import asyncio

        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # a loop alone does not keep its tasks alive

    @staticmethod
    def owner() -> object:
        """Return what an alarm made here would belong to: the running event loop."""
        import asyncio

        return asyncio.get_running_loop()

    @property
    def is_dead(self) -> bool:
        """Whether it can never ring again: its event loop was closed."""
        return self._loop.is_closed()

    def set(self, seconds: float) -> None:
        """Ring after that time, or earlier if it was set before. Call it in its event loop."""
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
    """Rings in a daemon thread, or a greenlet, that ends when nothing is set."""

    def __init__(self, ring: Callable[[], None], name: str = "zael-slots") -> None:
        self._ring = ring
        self._name = name  # of its thread
        self._at: float | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()  # re-entrant: a signal handler may set it, too
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start again: the thread is not in the child."""
        self._changed = threading.Condition()
        self._at, self._thread = None, None

    @staticmethod
    def owner() -> object:
        """Return what an alarm made here would belong to: the process."""
        return None

    @property
    def is_dead(self) -> bool:
        return False

    def set(self, seconds: float) -> None:
        """Ring after that time, or earlier if it was set before."""
        at = time.monotonic() + max(seconds, 0.0)
        with self._changed:
            if self._at is None or at < self._at:
                self._at = at
                self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name=self._name)
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
            self._thread = None  # the next call of `set` starts another one
            raise

    def _ring_once(self) -> None:
        """Ring, and go on whatever that raises, `sys.exit` in a callback of the user's included."""
        try:
            self._ring()
        except (Exception, SystemExit):  # noqa: BLE001 - the thread must outlive any call
            # Not before it is needed: `import zae_limiter` does without logging.
            from zae_limiter.quiet_logging import quiet_logger

            quiet_logger(__name__).exception("a call in the background has failed")

    def _wait(self) -> bool:
        """Wait until it is time to ring; False if nothing is set, which ends the thread."""
        with self._changed:
            while self._at is not None:
                left = self._at - time.monotonic()
                if left <= 0:
                    self._at = None
                    return True
                self._changed.wait(left)
            self._thread = None
            return False
