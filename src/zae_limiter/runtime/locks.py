"""A lock and counters that tasks, threads, signal handlers and forked children may share.

A fork copies the memory, but only the thread that forks. So a lock that another thread held would
stay locked in the child, and nobody would finish the work of that thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:  # at run time, making a Protocol would add a millisecond to the import
    from typing import Protocol

    class Forkable(Protocol):
        def after_fork(self) -> None:
            """Reset the state that the child must not share; called first of all in the child."""

    class ForkAware(Forkable, Protocol):
        def before_fork(self) -> None:
            """Stop all activity; called in the thread that forks, which waits for the return."""

        def after_fork_in_parent(self) -> None:
            """Go on in the parent process."""


_forkables: WeakSet[Forkable] = WeakSet()
_aware: WeakSet[ForkAware] = WeakSet()


def renew_after_fork(forkable: Forkable) -> None:
    """Call ``forkable.after_fork()`` in every forked child; the reference is weak."""
    _forkables.add(forkable)


def rest_during_fork(aware: ForkAware) -> None:
    """Call all three methods of ``aware`` around every fork; the reference is weak."""
    _aware.add(aware)


def _before() -> None:
    for aware in list(_aware):
        try:  # noqa: SIM105 - the import of this module does without contextlib
            aware.before_fork()
        except Exception:  # noqa: BLE001 - Python would print the error and fork all the same
            pass


def _in_parent() -> None:
    for aware in list(_aware):
        aware.after_fork_in_parent()


def _in_child() -> None:
    for forkable in (*_forkables, *_aware):
        forkable.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

if TYPE_CHECKING:

    class _RLock:  # in the type stubs the real class is final, although it can be subclassed
        def __enter__(self) -> bool: ...
        def __exit__(self, *exc_info: object) -> None: ...
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def _at_fork_reinit(self) -> None: ...
        def _is_owned(self) -> bool: ...
else:
    _RLock = type(threading.RLock())  # `threading.RLock` is a function


class SignalSafeLock(_RLock):
    """A re-entrant lock that is free in a forked child.

    A signal handler may run in the thread that holds the lock: with a plain lock, the thread would
    wait for itself. A fork copies the lock in its state, but the thread that holds it does not
    exist in the child.
    """

    def __init__(self) -> None:
        super().__init__()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._at_fork_reinit()  # as `threading`, `logging` and `queue` do with their own locks

    def is_held_here(self) -> bool:
        """Tell whether the calling thread holds the lock."""
        return self._is_owned()


class Counter:
    """A count to which threads and signal handlers may add."""

    __slots__ = ("_due", "_lock", "value")

    def __init__(self) -> None:
        self.value = 0
        self._due = 0.0
        self._lock = SignalSafeLock()

    def add(self, amount: int = 1) -> None:
        with self._lock:
            self.value += amount

    def is_due(self, every_s: float) -> bool:
        """Return True at most once in ``every_s`` seconds."""
        with self._lock:
            now = time.monotonic()
            if now < self._due:
                return False
            self._due = now + every_s
            return True


class LockFreeCount:
    """A counter for events of every acquire, exact even if an interrupt comes at any moment.

    ``add`` is a single call in C and takes no lock. In ``Counter.add``, an interrupt between two
    steps would leave a wrong count.
    """

    __slots__ = ("_numbers", "add")

    def __init__(self) -> None:
        self._numbers = count()
        self.add: Callable[[], int] = self._numbers.__next__

    def value(self) -> int:
        # An `itertools.count` has no method that reads it without advancing it. Its repr,
        # "count(7)", is documented; tests/unit/dynamodb/test_counters.py fails if it changes.
        return int(repr(self._numbers)[6:-1])
