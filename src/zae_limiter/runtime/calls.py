"""Helpers for calls that wait, that block, or that may take too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Closeable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)


class Opening(Coroutine[Any, Any, C], Generic[C]):
    """A call that opens a resource. Await it, or use it in ``async with``, which also closes it.

    It is a coroutine, so ``asyncio.run`` and ``create_task`` accept it.
    """

    def __init__(self, call: Coroutine[Any, Any, C]) -> None:
        self._call = call
        self._opened: C | None = None

    def __await__(self) -> Generator[Any, Any, C]:
        return self._call.__await__()

    def send(self, value: Any) -> Any:
        return self._call.send(value)

    def throw(self, *error: Any) -> Any:
        return self._call.throw(*error)

    def close(self) -> None:
        self._call.close()

    async def __aenter__(self) -> C:
        self._opened = await self._call
        return self._opened

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._opened is not None, "__aenter__ runs before __aexit__"
        await self._opened.close()


async def ablocking(call: Callable[..., T], *args: Any, undo: Callable[[T], None]) -> T:
    """Run a call that blocks without blocking the event loop.

    If the caller is cancelled, the result of the call is passed to ``undo`` when the call ends.
    """
    import asyncio

    task = asyncio.get_running_loop().run_in_executor(None, lambda: call(*args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: None if done.exception() else undo(done.result()))
        raise


def blocking(call: Callable[..., T], *args: Any, undo: Callable[[T], None]) -> T:
    """Run the call. An interrupt is raised inside of the call, which cleans up by itself."""
    return call(*args)


async def awithin(seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of the call; raise TimeoutError if it takes longer."""
    import asyncio

    return await asyncio.wait_for(call(), seconds)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of the call; raise TimeoutError if it takes longer.

    After a timeout the call still ends in its thread, and its result is dropped.
    """
    from queue import Empty, SimpleQueue

    results: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            results.put((None, error))

    threading.Thread(target=run, daemon=True, name="zael-within").start()
    try:
        result, error = results.get(timeout=seconds)
    except Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def acaller_id() -> int:
    """Return a number that is different for each task that runs now."""
    import asyncio

    return id(asyncio.current_task())


def caller_id() -> int:
    """Return a number that is different for each thread that runs now."""
    return threading.get_ident()


async def asleep(seconds: float) -> None:
    """Return after so many seconds."""
    import asyncio

    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Return after so many seconds."""
    time.sleep(seconds)


async def apause() -> None:
    """Let other tasks run between two pieces of long work."""
    import asyncio

    await asyncio.sleep(0)


def pause() -> None:
    """Do nothing, since the interpreter switches threads by itself."""


async def aturn() -> None:
    """Return in a step of the event loop in which no other caller of this function goes on."""
    from zae_limiter.runtime.turns import anext_turn  # imports asyncio

    await anext_turn()


def turn() -> None:
    """Do nothing: threads end one by one."""
