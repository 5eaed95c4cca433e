"""One thread at a time for a store that wants no more: tickets and those who run them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable

T = TypeVar("T")

MAX_BATCH = 256
PATIENCE = 5  # how much longer a settlement waits for its turn: nobody else would write it


class Ticket:
    """One operation on its way to the thread that may run it.

    ``receipt`` holds the result if and only if the operation stands, whatever becomes of the
    caller: an interrupted caller looks there to see what it has to take back.
    """

    __slots__ = (
        "_claim",
        "args",
        "deadline",
        "done",
        "error",
        "future",
        "must_run",
        "operation",
        "receipt",
        "wait_s",
    )

    def __init__(
        self,
        operation: Callable[..., Any],
        args: tuple[Any, ...],
        receipt: list[Any],
        wait_s: float,
        must_run: bool,
    ) -> None:
        self.operation = operation
        self.args = args
        self.receipt = receipt
        self.wait_s = wait_s
        self.deadline = time.monotonic() + wait_s
        self.must_run = must_run
        self.error: BaseException | None = None
        self.done = False
        self.future: asyncio.Future[None] | None = None
        self._claim = [True]

    def claim(self) -> bool:
        """True for exactly one of those who ask: list.pop is atomic."""
        with suppress(IndexError):
            return self._claim.pop()
        return False

    def starts(self, now: float) -> bool:
        """Whether it is still wanted; what must run has all its time from now on."""
        if self.must_run:
            self.deadline = now + self.wait_s
        return self.deadline > now

    def run(self, target: Any) -> None:
        self.receipt.append(self.operation(target, *self.args))

    def take_back(self) -> None:
        self.receipt.clear()

    def fail(self, error: BaseException) -> None:
        self.error = error

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.receipt[-1]


class AWorker:
    """Runs tickets in one thread, all that are waiting in one batch.

    A cancelled caller's ticket is withdrawn if it has not started; otherwise the caller waits for
    its end, so that it knows what happened.
    """

    def __init__(
        self,
        run_batch: Callable[[Sequence[Ticket]], None],
        run_one: Callable[[Ticket], None],
        timeout_s: float,
    ) -> None:
        self._run_batch = run_batch
        self._timeout_s = timeout_s
        self._queue: SimpleQueue[Ticket | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False

    async def run(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        receipt: list[T],
        *,
        must_run: bool = False,
        abandon: bool = False,
    ) -> T:
        """Run ``operation(target, *args)``. With ``must_run`` a cancellation only waits.

        With ``abandon`` a cancelled caller does not wait for the end: it was only reading.
        """
        ticket = Ticket(operation, args, receipt, self._timeout_s, must_run)
        ticket.future = asyncio.get_running_loop().create_future()
        self._submit(ticket)
        try:
            await ticket.future
        except asyncio.CancelledError:
            if not ticket.done and (must_run or not ticket.claim()) and not abandon:
                await _end_of(ticket)
            raise
        return ticket.outcome()  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Finish what is queued, then stop the thread."""
        with self._lock:
            closing, self._closed = not self._closed, True
            thread = self._thread
        if thread is not None:
            if closing:
                self._queue.put(None)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _submit(self, ticket: Ticket) -> None:
        with self._lock:
            if self._closed:
                raise InfrastructureError("the repository is closed; open it again")
            if self._pid != os.getpid():
                raise InfrastructureError(
                    "the repository was opened before a fork; open it in each process"
                )
            if self._thread is None:
                self._thread = self._started()
            self._queue.put(ticket)

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._loop, daemon=True, name="zael-worker")
        try:
            thread.start()
        except RuntimeError as error:
            raise RateLimiterUnavailable(
                f"the thread that writes was not started: {error}; try again", cause=error
            ) from error
        return thread

    def _loop(self) -> None:
        while True:
            batch, last = _next_batch(self._queue)
            claimed = [ticket for ticket in batch if ticket.claim()]
            now = time.monotonic()
            ready = [ticket for ticket in claimed if ticket.starts(now)]
            for ticket in claimed:
                if ticket.deadline <= now:
                    ticket.fail(RateLimiterUnavailable("the store did not answer in time"))
            if ready:
                self._run_guarded(ready)
            _deliver(claimed)
            if last:
                return

    def _run_guarded(self, tickets: list[Ticket]) -> None:
        try:
            self._run_batch(tickets)
        except BaseException as error:  # noqa: BLE001 - the thread must outlive any operation
            for ticket in tickets:
                ticket.fail(error)


def _next_batch(queue: SimpleQueue[Ticket | None]) -> tuple[list[Ticket], bool]:
    """Everything that is waiting, at least one; and whether the end was among it."""
    batch: list[Ticket] = []
    entry = queue.get()
    with suppress(Empty):
        while entry is not None:
            batch.append(entry)
            if len(batch) == MAX_BATCH:
                return batch, False
            entry = queue.get_nowait()
        return batch, True
    return batch, False


def _deliver(tickets: list[Ticket]) -> None:
    """Wake the callers, with one call per event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        assert ticket.future is not None
        loops.setdefault(ticket.future.get_loop(), []).append(ticket)
    for loop, theirs in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_wake, theirs)


def _wake(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.done = True
        if ticket.future is not None and not ticket.future.done():
            ticket.future.set_result(None)


async def _end_of(ticket: Ticket) -> None:
    while not ticket.done:
        ticket.future = asyncio.get_running_loop().create_future()
        with suppress(asyncio.CancelledError):
            await ticket.future


def one_by_one(run_one: Callable[[Ticket], None]) -> Callable[[Sequence[Ticket]], None]:
    """A batch in which every ticket stands for itself."""

    def run_batch(tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            try:
                run_one(ticket)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                ticket.fail(error)

    return run_batch


class Worker:
    """Runs tickets in the threads that bring them, one at a time."""

    def __init__(
        self,
        run_batch: Callable[[Sequence[Ticket]], None],
        run_one: Callable[[Ticket], None],
        timeout_s: float,
    ) -> None:
        self._run_one = run_one
        self._timeout_s = timeout_s
        # Re-entrant only because it knows its owner: an interrupt may strike between taking
        # the lock and noting that it was taken.
        self._lock = threading.RLock()
        self._closed = False

    def run(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        receipt: list[T],
        *,
        must_run: bool = False,
        abandon: bool = False,
    ) -> T:
        """Run ``operation(target, *args)``; an interrupt is raised once it stands or is undone."""
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - see above
            raise InfrastructureError("a signal handler must not use a store that it interrupts")
        ticket = Ticket(operation, args, receipt, self._timeout_s, must_run)
        try:
            try:
                self._enter(self._timeout_s * (PATIENCE if must_run else 1))
                ticket.starts(time.monotonic())
                self._run_one(ticket)
            finally:
                self._leave()
        finally:
            self._leave()  # again, for an interrupt that struck inside the first one
        return receipt[-1]

    def _enter(self, timeout_s: float) -> None:
        if not self._lock.acquire(timeout=timeout_s):
            raise RateLimiterUnavailable("the store did not answer in time")
        if self._closed:
            raise InfrastructureError("the repository is closed; open it again")

    def _leave(self) -> None:
        while self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - see above
            self._lock.release()

    def close(self) -> None:
        """No more work; what runs is waited for."""
        with self._lock:
            self._closed = True
