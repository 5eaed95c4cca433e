"""The calls in flight of one client: closing it waits for them, and refuses new ones."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress

from zae_limiter.concurrency.locks import renew_after_fork
from zae_limiter.exceptions import InfrastructureError


class InFlightCalls:
    """The set of calls in flight; refuses new ones once closed.

    It has no lock: a signal handler may close the client while its own thread is in here. Changes
    of a set or a list are atomic, and their order prevents misses: a call is added before it
    checks ``is_closed``, and ``close`` sets ``is_closed`` before it looks for calls.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Drop the parent's calls."""
        self.ids: set[int] = set()
        self._drained: Future[None] = Future()
        self._drained.set_running_or_notify_cancel()  # so that no waiter can cancel it
        self._unresolved = [self._drained]

    def close(self) -> Future[None]:
        """Refuse new calls; the returned future is done when the last one has ended."""
        self.is_closed = True
        self.resolve_if_drained()
        return self._drained

    def resolve_if_drained(self) -> None:
        """Resolve the drained future exactly once: list.pop() lets one caller win."""
        if not self.ids:
            with suppress(IndexError):
                self._unresolved.pop().set_result(None)


class InFlightCall:
    """One call; it ends when the frame that holds it drops it, also after an interrupt."""

    __slots__ = ("_calls",)

    def __init__(self, calls: InFlightCalls) -> None:
        """Raises InfrastructureError if the client is closed."""
        self._calls = calls
        calls.ids.add(id(self))
        if calls.is_closed:
            self.end()
            raise InfrastructureError("the repository is closed; open it again")

    def end(self) -> None:
        """Remove the call; may be called twice."""
        calls = self._calls
        calls.ids.discard(id(self))
        if calls.is_closed:
            calls.resolve_if_drained()

    __del__ = end
