"""Calls that no caller waits for, and calls that outlive their owner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakSet

from zae_limiter.runtime.locks import renew_after_fork
from zae_limiter.runtime.parallel import Parallel

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future


class ABackground:
    """Runs calls in tasks of the loop that starts them. Only the sync form uses ``parallel``."""

    def __init__(self, parallel: Parallel) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """The number of running calls. Calls of a closed loop never end and are left out."""
        self._tasks -= {task for task in self._tasks if task.get_loop().is_closed()}
        return len(self._tasks)

    def start(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a call, which must not raise."""
        import asyncio

        task = asyncio.ensure_future(call())
        self._tasks.add(task)  # a loop itself refers to its tasks weakly
        task.add_done_callback(self._tasks.discard)

    async def wait(self, seconds: float) -> None:
        """Return when all calls that this loop runs have ended, or after that long."""
        import asyncio

        loop = asyncio.get_running_loop()
        own = [task for task in self._tasks if task.get_loop() is loop]
        if own and seconds > 0:
            await asyncio.wait(own, timeout=seconds)


class Background:
    """Runs calls in threads or greenlets, or at once if ``parallel`` has neither."""

    def __init__(self, parallel: Parallel) -> None:
        self._parallel = parallel
        self._futures: set[Future[None]] = set()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the calls of the parent, whose threads do not exist in the child."""
        self._futures.clear()

    @property
    def running(self) -> int:
        """The number of running calls."""
        return len(self._futures)

    def start(self, call: Callable[[], None]) -> None:
        """Start a call, which must not raise."""
        future = self._parallel.start(call)
        if future is not None:
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)

    def wait(self, seconds: float) -> None:
        """Return when all calls have ended, or after that long."""
        from concurrent.futures import wait

        if self._futures and seconds > 0:
            wait(list(self._futures), seconds)


# --- after the owner was dropped


async def aclose_quietly(source: Any) -> None:
    """Close an object of another library by ``aclose`` or ``close``; its errors are logged."""
    from inspect import isawaitable  # imported here, since its import is slow

    close = getattr(source, "aclose", None) or getattr(source, "close", None)
    try:
        closing = close() if callable(close) else None
        if isawaitable(closing):
            await closing
    except Exception as error:  # noqa: BLE001 - the other library may raise anything
        _log_close(source, error)


def close_quietly(source: Any) -> None:
    """Close an object of another library; its errors are logged."""
    close = getattr(source, "close", None)
    try:
        if callable(close):
            close()
    except Exception as error:  # noqa: BLE001 - the other library may raise anything
        _log_close(source, error)


def _log_close(source: Any, error: Exception) -> None:
    # Imported here, so that `import zae_limiter` does not import logging.
    from zae_limiter.quiet_logging import quiet_logger

    quiet_logger(__name__).debug("could not close %r: %r", source, error)


# The steps of the event loop after which the last calls of owners that were just dropped have
# begun. A dropped generator takes the first steps: asyncio closes it in a task, which then drops
# the stream that the generator held.
_LOOP_STEPS: Final = 5


class ALastCalls:
    """Runs a call after its owner was dropped, on the event loop that the owner was used on.

    It is made while that loop runs. ``run`` may be called in any thread, even by the garbage
    collector.
    """

    _tasks: ClassVar[set[Any]] = set()  # a loop itself refers to its tasks weakly
    _loops: ClassVar[WeakSet[Any]] = WeakSet()  # the loops that owners were used on

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._loops.add(self._loop)

    @classmethod
    async def wait(cls, seconds: float) -> None:
        """Return when all calls of this loop have ended, or after that long.

        It returns at once without a running loop, or if no owner was used on the loop.
        """
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no loop runs here
            return
        if loop not in cls._loops:
            return
        for _ in range(_LOOP_STEPS):
            await asyncio.sleep(0)
        caller = asyncio.current_task()
        own = [task for task in cls._tasks if task.get_loop() is loop and task is not caller]
        if own:
            await asyncio.wait(own, timeout=seconds)

    def run(self, call: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start the call; return False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._start, call)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _start(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(call())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class LastCalls:
    """Runs a call after its owner was dropped, in a thread of its own.

    The garbage collector may drop the owner in a thread that holds a lock which the call needs. So
    the call must run in another thread.
    """

    # Changed without a lock, since the garbage collector may run in a thread that holds the lock.
    _threads: ClassVar[set[threading.Thread]] = set()

    @classmethod
    def wait(cls, seconds: float) -> None:
        """Return when all calls have ended, or after that long."""
        end_s = monotonic() + seconds
        for thread in cls._threads - {threading.current_thread()}:
            if thread.is_alive():
                thread.join(max(0.0, end_s - monotonic()))

    def run(self, call: Callable[[], None]) -> bool:
        """Start the call; return False if no thread can be started."""
        thread = threading.Thread(
            target=self._run, args=(call,), daemon=True, name="zael-background"
        )
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends
            self._threads.discard(thread)
            return False
        return True

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            self._threads.discard(threading.current_thread())
