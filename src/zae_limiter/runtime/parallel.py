"""Independent calls that run side by side, in tasks, threads or greenlets."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from zae_limiter.exceptions import ValidationError
from zae_limiter.runtime.locks import SignalSafeLock

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

# Calls wait for a store, so many threads are useful; still more would compete for the interpreter.
MAX_THREADS = 32
PARALLEL_MODES = ("auto", "gevent", "threadpool", "serial")


class Parallel:
    """Runs independent calls of the sync tree, in a mode that is chosen at the opening.

    An unsuited mode is warned of, unless ``warns`` is False: an opening makes several of these, and
    one of them is enough.
    """

    def __init__(self, mode: str = "auto", *, useful: bool = True, warns: bool = True) -> None:
        if mode not in PARALLEL_MODES:
            raise ValidationError(
                "parallel_mode", mode, f"must be one of {', '.join(PARALLEL_MODES)}"
            )
        self.mode = mode
        if mode == "auto":
            # For a store that takes one call at a time, threads are not useful.
            self.mode = _best_mode() if useful else "serial"
        elif warns:
            _warn_if_unsuited(mode)
        self._pool: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._lock = SignalSafeLock()

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results in order. After all calls have ended, raise the first error."""
        if len(calls) <= 1:
            return [call() for call in calls]
        if self.mode == "threadpool":
            return self._run_in_threads(calls)
        if self.mode == "gevent" and _gevent_is_patched():
            return _run_in_greenlets(calls)
        return [call() for call in calls]

    def start(self, call: Callable[[], None]) -> Future[None] | None:
        """Start a call that no caller waits for; return None if it ran at once and has ended."""
        if self.mode == "threadpool":
            with self._lock:
                try:
                    return self._threads().submit(call)
                except RuntimeError:  # the interpreter ends
                    pass
        elif self.mode == "gevent" and _gevent_is_patched():
            return _start_greenlet(call)
        call()
        return None

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _threads(self) -> ThreadPoolExecutor:
        """Return the thread pool of this process; the caller holds the lock."""
        from concurrent.futures import ThreadPoolExecutor

        if self._pool is None or self._pid != os.getpid():  # threads do not survive a fork
            self._pid = os.getpid()
            self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="zael-parallel")
        return self._pool

    def _run_in_threads(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        with self._lock:
            pool, futures = self._threads(), []
            try:
                for call in calls[1:]:
                    futures.append(pool.submit(call))  # noqa: PERF401 - keeps the started calls
            except RuntimeError:  # the interpreter ends and starts no more threads
                pass
        try:
            first = calls[0]()  # the calling thread works as well
        finally:
            for future in futures:
                future.exception()
        rest = [call() for call in calls[1 + len(futures) :]]
        return [first, *(future.result() for future in futures), *rest]


def _gevent_is_patched() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("socket"))


def _best_mode() -> str:
    if _gevent_is_patched():
        return "gevent"
    return "serial" if (os.cpu_count() or 1) == 1 else "threadpool"


def _warn_if_unsuited(mode: str) -> None:
    if mode == "gevent" and not _gevent_is_patched():
        _warn("parallel_mode='gevent' without gevent's monkey-patching runs calls one by one")
    if mode == "threadpool" and (os.cpu_count() or 1) == 1:
        _warn("parallel_mode='threadpool' on a single CPU is slower than 'serial'")


def _warn(message: str) -> None:
    """Warn; the warning names the first caller outside of this package."""
    from inspect import currentframe

    # `skip_file_prefixes` of `warnings.warn` does this from Python 3.12 on.
    frame, level = currentframe(), 1
    while frame is not None and _is_own(frame.f_globals):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def _is_own(module_globals: dict[str, Any]) -> bool:
    """Tell whether code belongs to this package. Code that ``exec`` runs may have no name."""
    return str(module_globals.get("__name__", "")).startswith("zae_limiter.")


def _run_in_greenlets(calls: Sequence[Callable[[], T]]) -> list[T]:
    import gevent

    greenlets = [gevent.spawn(call) for call in calls]
    gevent.joinall(greenlets)
    return [greenlet.get() for greenlet in greenlets]


def _start_greenlet(call: Callable[[], None]) -> Future[None]:
    from concurrent.futures import Future

    import gevent

    future: Future[None] = Future()

    def run() -> None:
        try:
            call()
        finally:  # otherwise the call would seem to run for ever
            future.set_result(None)

    gevent.spawn(run)
    return future


async def agather(parallel: Parallel, *calls: Callable[[], Awaitable[T]]) -> list[T]:
    """Run the calls side by side. After all have ended, raise the first error in their order.

    Only the sync form uses ``parallel``.
    """
    import asyncio

    if len(calls) == 1:
        return [await calls[0]()]
    outcomes = await asyncio.gather(*(aoutcome_of(call) for call in calls), return_exceptions=True)
    return results_of(outcomes)


# The result of a call and None, or None and its error: even a result may be an exception.
CallOutcome = tuple[Any, Exception | None]


async def aoutcome_of(call: Callable[[], Awaitable[Any]]) -> CallOutcome:
    try:
        return await call(), None
    except Exception as error:  # noqa: BLE001 - raised by `results_of`
        return None, error


def results_of(outcomes: Sequence[CallOutcome | BaseException]) -> list[Any]:
    """Return the results of all calls, or raise the first error in their order."""
    results: list[Any] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):  # the call was cancelled
            raise outcome
        result, error = outcome
        if error is not None:
            raise error
        results.append(result)
    return results


def gather(parallel: Parallel, *calls: Callable[[], T]) -> list[T]:
    """Run the calls as ``parallel`` says."""
    return parallel.run(calls)
