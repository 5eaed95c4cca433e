"""Workers that run operations on a store which only one thread may use at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork

if TYPE_CHECKING:
    from zae_limiter.clock import Deadline

T = TypeVar("T")

# The most operations in one transaction: enough to spread the cost of a commit, and few enough that
# the last one waits hardly longer than the first.
MAX_BATCH = 256
# An operation that must run waits this many times longer for the lock, since a settlement would be
# lost otherwise.
MUST_RUN_FACTOR = 5


class StoreOperation:
    """One operation on its way to the thread that may run it.

    ``receipt`` holds the result if and only if the operation is committed. An interrupted caller
    looks there to see whether it has to undo the operation.
    """

    __slots__ = (
        "_unclaimed",
        "args",
        "deadline",
        "done",
        "error",
        "function",
        "future",
        "must_run",
        "receipt",
        "wait_s",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        receipt: Receipt[Any],
        wait_s: float,
        must_run: bool,
        deadline: Deadline | None = None,
    ) -> None:
        self.function = function
        self.args = args
        self.receipt = receipt
        self.wait_s = wait_s
        self.deadline = time.monotonic() + wait_s if deadline is None else deadline.at
        self.must_run = must_run
        self.error: BaseException | None = None
        self.done = False
        self.future: asyncio.Future[None] | None = None
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Return True to the first that asks, who may run or withdraw the operation."""
        with suppress(IndexError):
            return self._unclaimed.pop()  # list.pop is atomic
        return False

    def start(self, now: float) -> bool:
        """Return whether it is in time. The time of an operation that must run begins only now."""
        if self.must_run:
            self.deadline = now + self.wait_s
        return self.deadline > now

    def run(self, target: Any) -> None:
        self.receipt.outcome = self.function(target, *self.args)

    def take_back(self) -> None:
        self.receipt.withdraw()

    def fail(self, error: BaseException) -> None:
        self.error = error

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.receipt.outcome


class AWorker:
    """Runs operations in one thread; all that are queued run as one batch.

    If a caller is cancelled, its operation is withdrawn unless it has started. If it has started,
    the caller waits for its end, so that the receipt is complete.
    """

    def __init__(
        self,
        run_batch: Callable[[Sequence[StoreOperation]], None],
        run_one: Callable[[StoreOperation], None],
        timeout_s: float,
    ) -> None:
        self._run_batch = run_batch
        self._timeout_s = timeout_s
        self._queue: SimpleQueue[StoreOperation | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = SignalSafeLock()
        self._closed = False
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start again: the child has neither the thread nor the callers that wait for it."""
        self._queue = SimpleQueue()
        self._thread = None

    async def run(
        self,
        function: Callable[..., T],
        args: tuple[Any, ...],
        receipt: Receipt[T],
        *,
        must_run: bool = False,
        abandon: bool = False,
        deadline: Deadline | None = None,
    ) -> T:
        """Run ``function(target, *args)`` and return its result.

        With ``must_run``, the operation runs even if its caller is cancelled. With ``abandon``,
        for operations that only read, a cancelled caller does not wait for the end. The operation
        must begin by the ``deadline``, or within the timeout of this worker.
        """
        operation = StoreOperation(function, args, receipt, self._timeout_s, must_run, deadline)
        operation.future = asyncio.get_running_loop().create_future()
        self._submit(operation)
        try:
            await operation.future
        except asyncio.CancelledError:
            if not operation.done and (must_run or not operation.claim()) and not abandon:
                await _end_of(operation)
            raise
        return operation.outcome()  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Run the operations in the queue, then stop the thread."""
        with self._lock:
            closing, self._closed = not self._closed, True
            thread = self._thread
        if thread is not None:
            if closing:
                self._queue.put(None)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _submit(self, operation: StoreOperation) -> None:
        with self._lock:
            if self._closed:
                raise InfrastructureError("the repository is closed; open it again")
            if self._thread is None:
                self._thread = self._started()
            self._queue.put(operation)

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._loop, daemon=True, name="zael-worker")
        try:
            thread.start()
        except RuntimeError as error:
            raise RateLimiterUnavailable(
                f"the thread for the store could not be started: {error}; try again", cause=error
            ) from error
        return thread

    def _loop(self) -> None:
        while True:
            batch, last = _next_batch(self._queue)
            claimed = [operation for operation in batch if operation.claim()]
            now = time.monotonic()
            ready = [operation for operation in claimed if operation.start(now)]
            for operation in claimed:
                if operation.deadline <= now:
                    operation.fail(RateLimiterUnavailable("the store did not answer in time"))
            if ready:
                self._run_guarded(ready)
            _deliver(claimed)
            if last:
                return

    def _run_guarded(self, operations: list[StoreOperation]) -> None:
        try:
            self._run_batch(operations)
        except BaseException as error:  # noqa: BLE001 - the thread must outlive any operation
            for operation in operations:
                operation.fail(error)


def _next_batch(queue: SimpleQueue[StoreOperation | None]) -> tuple[list[StoreOperation], bool]:
    """Wait for an operation; return all queued operations, and whether to stop after them."""
    batch: list[StoreOperation] = []
    entry = queue.get()
    with suppress(Empty):
        while entry is not None:
            batch.append(entry)
            if len(batch) == MAX_BATCH:
                return batch, False
            entry = queue.get_nowait()
        return batch, True
    return batch, False


def _deliver(operations: list[StoreOperation]) -> None:
    """Wake the callers, with one call per event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[StoreOperation]] = {}
    for operation in operations:
        assert operation.future is not None
        loops.setdefault(operation.future.get_loop(), []).append(operation)
    for loop, waiting in loops.items():
        with suppress(RuntimeError):  # the loop is closed, so its tasks have ended
            loop.call_soon_threadsafe(_wake, waiting)


def _wake(operations: list[StoreOperation]) -> None:
    for operation in operations:
        operation.done = True
        if operation.future is not None and not operation.future.done():
            operation.future.set_result(None)


async def _end_of(operation: StoreOperation) -> None:
    while not operation.done:
        operation.future = asyncio.get_running_loop().create_future()
        with suppress(asyncio.CancelledError):
            await operation.future


def one_by_one(
    run_one: Callable[[StoreOperation], None],
) -> Callable[[Sequence[StoreOperation]], None]:
    """Return a function that runs the operations of a batch without a common transaction."""

    def run_batch(operations: Sequence[StoreOperation]) -> None:
        for operation in operations:
            try:
                run_one(operation)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                operation.fail(error)

    return run_batch


class Worker:
    """Runs operations in the threads of their callers, one at a time."""

    def __init__(
        self,
        run_batch: Callable[[Sequence[StoreOperation]], None],
        run_one: Callable[[StoreOperation], None],
        timeout_s: float,
    ) -> None:
        self._run_one = run_one
        self._timeout_s = timeout_s
        # A re-entrant lock knows its owner. With a plain lock, an interrupt could come after it was
        # taken and before that was noted. In a forked child the lock is free, although a thread of
        # the parent may have held it: the child opens its own connection to the store.
        self._lock = SignalSafeLock()
        self._closed = False

    def run(
        self,
        function: Callable[..., T],
        args: tuple[Any, ...],
        receipt: Receipt[T],
        *,
        must_run: bool = False,
        abandon: bool = False,
        deadline: Deadline | None = None,
    ) -> T:
        """Run ``function(target, *args)``; an interrupt is raised after its commit or rollback."""
        if self._lock.is_held_here():
            raise InfrastructureError(
                "a signal handler must not use a store whose operation it interrupts"
            )
        operation = StoreOperation(function, args, receipt, self._timeout_s, must_run, deadline)
        wait_s = self._timeout_s * (MUST_RUN_FACTOR if must_run else 1)
        try:
            try:
                self._enter(wait_s if deadline is None else max(0.0, deadline.left()))
                operation.start(time.monotonic())
                self._run_one(operation)
            finally:
                self._leave()
        finally:
            self._leave()  # again, since another interrupt may have ended the first call
        return receipt.outcome

    def _enter(self, timeout_s: float) -> None:
        if not self._lock.acquire(timeout=timeout_s):
            raise RateLimiterUnavailable("the store did not answer in time")
        if self._closed:
            raise InfrastructureError("the repository is closed; open it again")

    def _leave(self) -> None:
        while self._lock.is_held_here():
            self._lock.release()

    def close(self) -> None:
        """Wait for the running operation; refuse all later ones."""
        with self._lock:
            self._closed = True
