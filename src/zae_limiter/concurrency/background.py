"""Calls that no caller waits for, in tasks, threads or greenlets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from zae_limiter.concurrency.locks import renew_after_fork
from zae_limiter.concurrency.parallel import Parallel

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
