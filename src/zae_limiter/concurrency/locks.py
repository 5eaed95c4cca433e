"""A lock, and a counter, for what tasks, threads, signal handlers and forked children share.

A fork copies memory, but only the thread that forks: locks that other threads held stay locked in
the child, and what those threads were doing is never finished.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:  # making a Protocol takes a millisecond of every import
    from typing import Protocol

    class Forkable(Protocol):
        def after_fork(self) -> None:
            """Reset what must not be shared with the parent; called first of all in the child."""

    class ForkAware(Forkable, Protocol):
        def before_fork(self) -> None:
            """Come to rest: called in the thread that forks, which waits for it."""

        def after_fork_in_parent(self) -> None:
            """Go on in the process that has forked."""


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
        try:  # noqa: SIM105 - functions do without contextlib
            aware.before_fork()
        except Exception:  # noqa: BLE001 - Python prints an error of a hook and forks anyway
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

    class _RLock:  # the stubs call the real class final, which it is not
        def __enter__(self) -> bool: ...
        def __exit__(self, *exc_info: object) -> None: ...
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def _at_fork_reinit(self) -> None: ...
        def _is_owned(self) -> bool: ...
else:
    _RLock = type(threading.RLock())  # `threading.RLock` is a function


class SignalSafeLock(_RLock):
    """Re-entrant, and released in a forked child.

    A signal handler runs in a thread that may hold the lock already: with a plain lock it would
    wait for itself. A fork copies the lock as it is, and the thread that holds it does not exist
    in the child.
    """

    def __init__(self) -> None:
        super().__init__()
        renew_after_fork(self)

    def after_fork(self) -> None:
        # What `threading`, `logging` and `queue` call for their own locks. Subclassing keeps `with`
        # at C speed: a wrapper around the lock costs 0.2 µs more each time.
        self._at_fork_reinit()

    def is_held_here(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._is_owned()


class Counter:
    """A count that threads and signal handlers may add to."""

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
    """A counter for events of every acquire: ``add`` is one C call and takes no lock.

    With the lock of ``Counter.add`` an event costs 0.6 µs more, and an interrupt between two
    steps would leave a wrong count.
    """

    __slots__ = ("_numbers", "add")

    def __init__(self) -> None:
        self._numbers = count()
        self.add: Callable[[], int] = self._numbers.__next__

    def value(self) -> int:
        # A count cannot be read without advancing it; its repr, "count(7)", is documented and
        # has not changed since Python 2.3. tests/unit/test_locks.py fails if it does.
        return int(repr(self._numbers)[6:-1])
