"""Waiting for somebody else to finish."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class AWaiter:
    """For one task, for one time; may be woken from any thread."""

    __slots__ = ("_future", "_loop", "_woken")

    def __init__(self) -> None:
        import asyncio

        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._woken = False

    async def wait(self, seconds: float) -> None:
        """Until it is woken; may be called again after a cancellation. Raises TimeoutError."""
        until = self._loop.time() + seconds
        timer = self._loop.call_at(until, self._look_up)
        try:
            while not self._woken:
                if self._loop.time() >= until:
                    raise TimeoutError
                if self._future.done():
                    self._future = self._loop.create_future()
                await self._future
        finally:
            timer.cancel()

    def wake(self) -> bool:
        """False if its loop is closed: nobody waits any more."""
        from asyncio import _get_running_loop

        if _get_running_loop() is self._loop:
            self._wake()
            return True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        return True

    def _wake(self) -> None:
        self._woken = True
        self._look_up()

    def _look_up(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class Waiter:
    """For one thread, for one time."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Until it is woken. Raises TimeoutError."""
        if not self._lock.acquire(timeout=max(seconds, 0)):
            raise TimeoutError

    def wake(self) -> bool:
        with suppress(RuntimeError):  # it was woken already
            self._lock.release()
        return True
