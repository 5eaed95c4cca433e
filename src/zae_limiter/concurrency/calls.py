"""Helpers for calls that block, that may take too long, or that outlive their caller."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import monotonic
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

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


async def apause() -> None:
    """Let other tasks run between two pieces of long work."""
    import asyncio

    await asyncio.sleep(0)


def pause() -> None:
    """Do nothing, since the interpreter switches threads by itself."""


async def aturn() -> None:
    """Return in a step of the event loop in which no other caller of this function goes on."""
    from zae_limiter.concurrency.paced_cancelling import anext_turn  # imports asyncio

    await anext_turn()


def turn() -> None:
    """Do nothing: threads end one by one."""


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
