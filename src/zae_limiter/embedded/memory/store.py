"""One memory store: tables behind a lock, shared by threads and event loops alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter.embedded.memory.tables import MemoryTables
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork

T = TypeVar("T")

_named: dict[str, MemoryStore] = {}
_named_lock = SignalSafeLock()


class MemoryStore:
    """Runs operations one at a time; an operation that raises changes nothing.

    After a fork, parent and child each have a copy of their own.
    """

    def __init__(self) -> None:
        self._tables = MemoryTables()
        self._lock = SignalSafeLock()
        self._busy = False
        renew_after_fork(self)

    def after_fork(self) -> None:
        # A transaction of another thread can not be finished: that thread is not in the child.
        self._tables.journal.undo()
        self._busy = False

    def run(self, operation: Callable[..., T], args: tuple[Any, ...], receipt: Receipt[T]) -> T:
        """Run one transaction. ``receipt`` holds its result if and only if it was committed.

        An interrupt may arrive at any point; clearing the journal is what commits.
        """
        journal = self._tables.journal
        with self._lock:
            if self._busy:
                raise InfrastructureError(
                    "a signal handler used a memory store in the middle of an operation on it; "
                    "hand the call to a thread or to the event loop instead"
                )
            try:
                self._busy = True
                if self._tables.is_crowded:
                    self._tables.pack()
                result = operation(self._tables, *args)
                receipt.outcome = result
                journal.entries.clear()
            except BaseException:
                if journal.entries:
                    journal.undo()
                    receipt.withdraw()
                raise
            finally:
                self._busy = False
        return result


def open_store(name: str | None) -> MemoryStore:
    """Return a new store, or the one that this process shares under ``name``."""
    if not name:
        return MemoryStore()
    with _named_lock:
        return _named.setdefault(name, MemoryStore())
