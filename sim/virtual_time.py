"""Virtual time: an event loop that never waits, and the standard library's clock and chance.

For code without threads and other processes: they would get no time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
START_S = 1_767_225_600.0  # 2026-01-01T00:00Z


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as nothing else is to do.

    ``now_s`` is the time of the store, in seconds since 1970.
    """

    def __init__(self, start_s: float = START_S) -> None:
        self.now_s = start_s
        super().__init__(_NoSelector(self))  # type: ignore[arg-type]
        self._clock_resolution = 1e-6  # a float of this size has no finer one
        self.failure: BaseException | None = None
        self.set_exception_handler(self._fail)

    def time(self) -> float:
        return self.now_s

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the run with what a callback has raised."""
        if self.failure is None:
            self.failure = context.get("exception") or RuntimeError(str(context))

    def _make_self_pipe(self) -> None:
        """No other thread has to wake this loop."""

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class _NoSelector:
    def __init__(self, loop: VirtualTime) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        failure, self._loop.failure = self._loop.failure, None
        if failure is not None:
            raise failure
        if timeout is None:
            raise RuntimeError("every task waits for something that never comes")
        if timeout > 0:
            self._loop.now_s += timeout
        return []

    def get_map(self) -> dict[Any, Any]:
        return {}

    def close(self) -> None:
        pass


@contextmanager
def virtual_time(seed: int, start_s: float = START_S) -> Iterator[VirtualTime]:
    """Everything in the block happens in virtual time, and again the same way from its seed."""
    from zae_limiter._async import acquire, lease, waiting_charge

    # They have a name of their own for the clock.
    importing: tuple[Any, ...] = (acquire, lease, waiting_charge)
    library: Any = random  # its name for `os.urandom` is that of `secrets`
    loop = VirtualTime(start_s)
    chance, state = random.Random(f"{seed} urandom"), random.getstate()
    real = time.monotonic, os.urandom, library._urandom  # noqa: SLF001
    time.monotonic = loop.time
    for module in importing:
        module.monotonic = loop.time
    os.urandom = library._urandom = chance.randbytes  # noqa: SLF001
    random.seed(seed)
    asyncio.set_event_loop(loop)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # a fault that is injected is no news
    try:
        yield loop
    finally:
        logging.disable(disabled)
        time.monotonic, os.urandom, library._urandom = real  # noqa: SLF001
        for module in importing:
            module.monotonic = time.monotonic
        random.setstate(state)
        asyncio.set_event_loop(None)
        loop.close()


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. Only the loop's time is virtual."""
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(main)


def loop_clock() -> Callable[[], int]:
    """Return a clock of milliseconds that is the one of the running loop."""
    loop = asyncio.get_running_loop()
    return lambda: round(loop.time() * 1000)
