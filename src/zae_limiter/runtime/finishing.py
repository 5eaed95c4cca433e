"""A write that has begun is finished, and its outcome reaches the receipt.

An engine runs a write under a shield: the write goes on to its end even if its caller is cancelled
or interrupted. The engine notes the outcome in the receipt of the caller, who looks there.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zae_limiter.runtime.parallel import aoutcome_of, results_of

if TYPE_CHECKING:
    import asyncio
    from queue import SimpleQueue

    from zae_limiter.runtime.parallel import Parallel

T = TypeVar("T")


class _NotCommitted:
    def __repr__(self) -> str:
        return "NOT_COMMITTED"


NOT_COMMITTED: Any = _NotCommitted()


class Receipt(Generic[T]):
    """Holds the outcome of a call as soon as the outcome is final.

    It holds a grant if, and only if, the charge is committed. A caller that was cancelled or
    interrupted before it got the answer looks here, and undoes a grant; a rejection needs nothing.
    ``outcome`` is set by one assignment, which an interrupt cannot divide.
    """

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: T = NOT_COMMITTED

    @property
    def has_outcome(self) -> bool:
        return self.outcome is not NOT_COMMITTED

    def withdraw(self) -> None:
        """Remove the outcome, since the transaction was rolled back."""
        self.outcome = NOT_COMMITTED


# --- tasks


@cache
def _finishing_task() -> type[asyncio.Task[Any]]:
    import asyncio  # not needed by the sync tree

    class FinishingTask(asyncio.Task[T]):
        """A task that goes on if it is cancelled, even by the end of its loop, which waits."""

        def cancel(self, msg: Any | None = None) -> bool:
            return False

    return FinishingTask


async def ashield(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the call to its end; a cancellation of the caller is raised afterwards.

    The call runs in a task of its own. So it must not depend on the task that it started in.
    """
    import asyncio

    finishing = _finishing_task()
    if type(asyncio.current_task()) is finishing:
        return await call()
    task: asyncio.Task[T] = finishing(call())
    try:
        # A caller that is cancelled goes on to wait, since asyncio asks the task to end and is
        # refused. It raises the cancellation in the caller at the next step.
        return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs that the exception was never retrieved
        raise


async def agather_shielded(
    parallel: Parallel, *calls: Callable[[], Coroutine[Any, Any, T]]
) -> list[T]:
    """Run the calls side by side, as ``agather`` does, for a caller that is under a shield."""
    tasks = [_finishing_task()(aoutcome_of(call)) for call in calls[1:]]
    first = await aoutcome_of(calls[0])
    return results_of([first, *[await task for task in tasks]])


# --- threads and greenlets

# The interval at which an interrupted caller checks whether the call has ended. The lock does not
# tell, since the interrupt may have come right after the caller had acquired it.
_POLL_S = 0.05


def shield(call: Callable[[], T]) -> T:
    """Run the call to its end; an interrupt of the caller is raised afterwards.

    Signals interrupt only the main thread, so a call of the main thread runs in another thread.
    With gevent, a timeout or a kill interrupts any greenlet, so each call runs in a greenlet of its
    own.
    """
    if "gevent.monkey" in sys.modules and _threads_are_greenlets():
        return _in_greenlet(call)
    # While the interpreter ends, no other thread runs.
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():
        return call()
    job = _Job(call)
    try:
        try:
            _hand_to_runner(job)
            job.ended.acquire()
        except BaseException:
            job.wait_or_withdraw()
            raise
    except BaseException:
        job.wait_or_withdraw()  # again, since another interrupt may have ended the first call
        raise
    return job.outcome()  # type: ignore[no-any-return]


def gather_shielded(parallel: Parallel, *calls: Callable[[], T]) -> list[T]:
    """Run the calls as ``parallel`` says; the sync form of ``agather_shielded``."""
    return parallel.run(calls)


class _Job:
    """A call on its way to the thread that runs it. Its caller may withdraw it before it starts."""

    __slots__ = ("_claimants", "call", "ended", "error", "has_ended", "result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = threading.Lock()
        self.ended.acquire()
        self.has_ended = False
        self._claimants: list[str] = []

    def claim(self, claimant: str) -> bool:
        """Return True to the first claimant, every time that it asks."""
        self._claimants.append(claimant)  # list.append is atomic
        return self._claimants[0] == claimant

    def run(self) -> None:
        if not self.claim("runner"):
            return
        try:
            self.result = self.call()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            self.error = error
        self.has_ended = True
        self.ended.release()

    def wait_or_withdraw(self) -> None:
        """Return when the call has ended, or can no longer start."""
        if self.claim("caller"):
            self.has_ended = True
        while not self.has_ended:
            with suppress(BaseException):
                self.ended.acquire(timeout=_POLL_S)

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class _Runner:
    """The one thread that runs all calls of the main thread."""

    def __init__(self) -> None:
        from queue import SimpleQueue  # not needed by the async tree

        self.pid = os.getpid()
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._loop, daemon=True, name="zael-shield").start()

    def _loop(self) -> None:
        while True:
            job = self.jobs.get()
            job.run()
            del job  # otherwise its result would stay in memory until the next call


_runner: _Runner | None = None


def _hand_to_runner(job: _Job) -> None:
    global _runner  # noqa: PLW0603 - one per process
    runner = _runner
    if runner is None or runner.pid != os.getpid():  # threads do not survive a fork
        try:
            runner = _runner = _Runner()
        except RuntimeError:  # there are no more threads, or the process is ending
            job.run()
            return
    runner.jobs.put(job)


def _threads_are_greenlets() -> bool:
    return bool(sys.modules["gevent.monkey"].is_module_patched("threading"))


# The greenlets that run a shielded call. Only this module knows them, so nothing interrupts them,
# and a shield inside of another one needs no greenlet.
_shielded: set[int] = set()


def _in_greenlet(call: Callable[[], T]) -> T:
    """Run the call in a greenlet of its own; then raise the last interrupt of the caller."""
    if threading.get_ident() in _shielded:
        return call()
    from gevent import spawn_raw

    job = _Job(call)
    spawn_raw(_run_shielded, job)
    interrupt: BaseException | None = None
    while not job.has_ended:
        try:
            job.ended.acquire(timeout=-1 if interrupt is None else _POLL_S)
        except BaseException as error:  # noqa: BLE001 - raised below
            interrupt = error  # wait even if the call has not started: a refund must be made
    if interrupt is not None:
        try:
            raise interrupt
        finally:
            del interrupt  # its traceback holds this frame
    return job.outcome()  # type: ignore[no-any-return]


def _run_shielded(job: _Job) -> None:
    greenlet = threading.get_ident()
    _shielded.add(greenlet)
    try:
        job.run()
    finally:
        _shielded.discard(greenlet)
