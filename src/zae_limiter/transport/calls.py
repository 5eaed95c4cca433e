"""The retries of a call within its deadline, and the calls in flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from zae_limiter.clock import Deadline
from zae_limiter.clock.backoff import Backoff
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable
from zae_limiter.runtime.locks import renew_after_fork
from zae_limiter.store_errors import NoAnswer, NotSent, ServerFault, Throttled

_FIRST_PAUSE_S = 0.025  # about a round trip within a region
_LONGEST_PAUSE_S = 0.4  # a fifth of the default deadline, so that a retry still fits
_LEAST_ATTEMPT_S = 0.005  # no answer comes back in less time
# A server that has not accepted a connection by then is down. The attempt fails while another one
# still fits.
_MAX_CONNECT_S = 1.0


class Retries:
    """Decides when one call is tried again.

    If an attempt may have been carried out, the call ends with an error that says so, whatever
    became of later attempts.
    """

    __slots__ = (
        "_backoff",
        "_deadline",
        "_failed_connects",
        "_has_retried",
        "_repeatable",
        "_throttled",
        "_unknown",
    )

    def __init__(
        self, deadline: Deadline, repeatable: bool, throttled: Callable[[], None] | None = None
    ) -> None:
        """``throttled`` is called whenever the item may be the cause of throttling."""
        self._deadline = deadline
        self._repeatable = repeatable
        self._throttled = throttled
        self._failed_connects = 0
        self._has_retried = False
        self._backoff: Backoff | None = None  # most calls are never retried
        self._unknown: RateLimiterUnavailable | None = None  # the last error of unknown outcome

    def timeouts(self) -> tuple[float, float]:
        """Return the seconds that the next attempt has for everything, and for connecting.

        The first attempt of a repeatable call gets half of the time, so that a dead connection
        leaves time for another.
        """
        left = self._deadline.at - time.monotonic()
        if left <= 0:
            raise self._unknown or NotSent("there was no time left to ask DynamoDB")
        half = connect = left / 2
        if connect > _MAX_CONNECT_S:
            connect = _MAX_CONNECT_S
        return half if self._repeatable and self._unknown is None else left, connect

    def pause_after(self, error: RateLimiterUnavailable) -> float:
        """Return the seconds until the next attempt; raises the error if there is none."""
        if self._throttled and isinstance(error, Throttled) and error.of_item:
            self._throttled()
        is_certain = isinstance(error, NotSent | Throttled)
        # TransactionInProgress: an earlier send of the same transaction may still succeed.
        if not is_certain or getattr(error, "code", "") == "TransactionInProgressException":
            self._unknown = (
                error if isinstance(error, NoAnswer | ServerFault) else _as_no_answer(error)
            )
        pause = self._pause(error)
        if pause is None or pause + _LEAST_ATTEMPT_S >= self._deadline.left():
            raise self._unknown or error
        return pause

    def _pause(self, error: RateLimiterUnavailable) -> float | None:
        if isinstance(error, NotSent):
            self._failed_connects += 1
            return 0.0 if self._failed_connects == 1 else None
        if not isinstance(error, Throttled) and not self._repeatable:
            return None
        if isinstance(error, NoAnswer):
            if error.closed_idle:  # other idle connections may have been closed, too
                return 0.0
            if not self._has_retried:
                self._has_retried = True
                return 0.0
        self._has_retried = True
        if self._backoff is None:
            self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        return self._backoff.next_s()


def _as_no_answer(error: RateLimiterUnavailable) -> NoAnswer:
    return NoAnswer(str(error), cause=error)


class InFlightCalls:
    """The set of calls in flight; refuses new ones once closed.

    This class has no lock, since a signal handler may close the client while its own thread is in
    here. Changes of a set or a list are atomic, and their order prevents misses: a call is added
    before it checks ``is_closed``, and ``close`` sets ``is_closed`` before it looks for calls.
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
    """One call, in flight while the block runs. Entering raises if the client is closed."""

    __slots__ = ("_calls",)

    def __init__(self, calls: InFlightCalls) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        calls = self._calls
        calls.ids.add(id(self))
        if calls.is_closed:
            self._end()
            raise InfrastructureError("the repository is closed; open it again")

    def __exit__(self, *exc_info: object) -> None:
        self._end()

    def _end(self) -> None:
        calls = self._calls
        calls.ids.discard(id(self))
        if calls.is_closed:
            calls.resolve_if_drained()
