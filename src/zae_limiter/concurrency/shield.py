"""Work that is carried to its end although the caller is stopped."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from zae_limiter.concurrency.steady import Shield

T = TypeVar("T")
_shield: type[Shield] | None = None


def ashield(call: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    """Run the call to its end; a cancellation of the caller is raised after that."""
    return (_shield or _load_shield())().run(call)


def _load_shield() -> type[Shield]:
    """Not before it is needed: it brings asyncio along, which the sync tree does without."""
    global _shield  # noqa: PLW0603 - imported once
    from zae_limiter.concurrency.steady import Shield

    _shield = Shield
    return Shield


def shield(call: Callable[[], T]) -> T:
    """Run the call to its end; an interrupt of the caller is raised after that.

    Interrupts strike the main thread alone, so only there the work goes to another one.
    """
    if (
        threading.get_ident() != threading.main_thread().ident
        or _is_cooperative()
        or sys.is_finalizing()  # no other thread runs any more
    ):
        return call()
    job = _Job(call)
    try:
        try:
            _hand_over(job)
            job.ended.acquire()
        except BaseException:
            job.see_through()
            raise
    except BaseException:
        job.see_through()  # again, for an interrupt that struck inside the first one
        raise
    return job.outcome()  # type: ignore[no-any-return]


class _Job:
    """A call on its way to the thread that runs it."""

    __slots__ = ("_claims", "call", "ended", "error", "is_over", "result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = threading.Lock()
        self.ended.acquire()
        self.is_over = False
        self._claims: list[str] = []

    def claim(self, who: str) -> bool:
        """True for the first who asks, however often it does: list.append is atomic."""
        self._claims.append(who)
        return self._claims[0] == who

    def run(self) -> None:
        if not self.claim("runner"):
            return
        try:
            self.result = self.call()
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            self.error = error
        self.is_over = True
        self.ended.release()

    def see_through(self) -> None:
        """Return when it is over, or when it can no longer start."""
        if self.claim("caller"):
            self.is_over = True
        while not self.is_over:
            with suppress(BaseException):
                self.ended.acquire(timeout=0.05)

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class _Runner:
    """One thread is enough: it works for the main thread only."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._loop, daemon=True, name="zael-shield").start()

    def _loop(self) -> None:
        while True:
            job = self.jobs.get()
            job.run()
            del job  # holds on to nothing while it waits


_runner: _Runner | None = None


def _hand_over(job: _Job) -> None:
    global _runner  # noqa: PLW0603 - one per process
    runner = _runner
    if runner is None or runner.pid != os.getpid():  # threads do not survive a fork
        try:
            runner = _runner = _Runner()
        except RuntimeError:  # there are no more threads, or the process is ending
            job.run()
            return
    runner.jobs.put(job)


def _is_cooperative() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))
