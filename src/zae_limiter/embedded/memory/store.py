"""One memory store: tables behind a lock, shared by threads and event loops alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.embedded.memory.tables import MemoryTables
from zae_limiter.exceptions import InfrastructureError

T = TypeVar("T")

_named: dict[str, MemoryStore] = {}
_named_lock = threading.Lock()


class MemoryStore:
    """Runs operations one at a time; an operation that raises leaves no trace.

    A forked child has a copy of its own from then on.
    """

    def __init__(self) -> None:
        self._tables = MemoryTables()
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._tables.journal.undo()  # of a thread that does not exist in the child
        self._lock = threading.RLock()
        self._busy = False

    def run(self, operation: Callable[..., T], args: tuple[Any, ...], receipt: list[T]) -> T:
        """Run one transaction. ``receipt`` holds its result if and only if it stands.

        An interrupt may arrive at any point; emptying the journal is what commits.
        """
        journal = self._tables.journal
        with self._lock:
            if self._busy:
                raise InfrastructureError(
                    "a signal handler must not use a store that it interrupts"
                )
            try:
                self._busy = True
                result = operation(self._tables, *args)
                receipt.append(result)
                journal.entries.clear()
            except BaseException:
                if journal.entries:
                    journal.undo()
                    receipt.clear()
                raise
            finally:
                self._busy = False
        return result


def open_store(name: str | None) -> MemoryStore:
    """A store of one's own, or the one that this process shares under ``name``."""
    if not name:
        return MemoryStore()
    with _named_lock:
        return _named.setdefault(name, MemoryStore())
