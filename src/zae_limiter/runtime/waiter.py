"""One-shot events: a task or a thread waits until another one wakes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Protocol

from zae_limiter.runtime.calls import aturn

if TYPE_CHECKING:
    import asyncio


class Wakeable(Protocol):
    """A waiter of the async tree or of the sync tree."""

    def wake(self) -> bool: ...


@cache
def _get_running_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    import asyncio  # not needed by the sync tree

    return asyncio.get_running_loop


class AWaiter:
    """An event that one task awaits once; any thread may set it."""

    __slots__ = ("_expired", "_future", "_loop", "_woken")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop = _get_running_loop()()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._woken = self._expired = False

    async def wait(self, seconds: float) -> None:
        """Wait until woken; raise TimeoutError after that long. May be called again."""
        self._expired = seconds <= 0
        timer = self._loop.call_later(seconds, self._expire)
        try:
            while not self._woken:
                if self._expired:
                    raise TimeoutError
                if self._future.done():
                    self._future = self._loop.create_future()
                await self._future
        finally:
            timer.cancel()

    def wake(self) -> bool:
        """Wake the task; return False if its loop is closed, so that it waits no more."""
        try:
            is_own_loop = _get_running_loop()() is self._loop
        except RuntimeError:  # no loop runs in this thread
            is_own_loop = False
        if is_own_loop:
            # Not at once: the leader of a write wakes the others before it goes on itself.
            self._loop.call_soon(self._wake)
            return True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        return True

    def _wake(self) -> None:
        self._woken = True
        if not self._future.done():
            self._future.set_result(None)

    def _expire(self) -> None:
        self._expired = True
        if not self._future.done():
            self._future.set_result(None)


class ALineWaiter(AWaiter):
    """An event for one of many waiting tasks. If all are cancelled, they go on one by one."""

    __slots__ = ()

    async def wait(self, seconds: float) -> None:
        """Wait until woken; raise TimeoutError after that long, and a cancellation in turn."""
        try:
            await super().wait(seconds)
        except BaseException as error:
            import asyncio  # not needed by the sync tree

            if isinstance(error, asyncio.CancelledError):
                await aturn()
            raise


class Waiter:
    """An event that one thread waits for once; any thread may set it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Wait until woken; raise TimeoutError after that long."""
        if not self._lock.acquire(timeout=max(seconds, 0)):
            raise TimeoutError

    def wake(self) -> bool:
        with suppress(RuntimeError):  # the lock is free, since the waiter was woken already
            self._lock.release()
        return True
