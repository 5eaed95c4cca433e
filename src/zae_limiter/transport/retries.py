"""When a call is made again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Callable

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.transport.deadline import Deadline
from zae_limiter.transport.errors import NoAnswer, NotSent, ServerFault, Throttled

_FIRST_PAUSE_S = 0.025
_LONGEST_PAUSE_S = 0.4
_LEAST_ATTEMPT_S = 0.005
_CONNECT_AT_MOST_S = 1.0


class Retries:
    """The policy of one call. An attempt that may have been carried out is never forgotten."""

    __slots__ = ("_connects", "_deadline", "_doubt", "_pauses", "_repeatable", "_throttled")

    def __init__(
        self, deadline: Deadline, repeatable: bool, throttled: Callable[[], None] | None = None
    ) -> None:
        """``throttled`` is told whenever the store has no throughput left."""
        self._deadline = deadline
        self._repeatable = repeatable
        self._throttled = throttled
        self._connects = 0
        self._pauses = 0
        self._doubt: RateLimiterUnavailable | None = None

    def timeouts(self) -> tuple[float, float]:
        """For the next attempt: until it must have an answer, until it must be connected.

        What may be repeated gets half of the time at first, so that a connection that leads
        nowhere leaves time for another.
        """
        left = self._deadline.left()
        if left <= 0:
            raise self._doubt or NotSent("there was no time left to ask DynamoDB")
        total = left / 2 if self._repeatable and self._doubt is None else left
        return total, min(total, left / 2, _CONNECT_AT_MOST_S)

    def pause_after(self, error: RateLimiterUnavailable) -> float:
        """Seconds until the next attempt; raises when there is none."""
        if self._throttled and isinstance(error, Throttled) and error.of_item:
            self._throttled()
        certain = isinstance(error, NotSent | Throttled)
        if not certain or getattr(error, "code", "") == "TransactionInProgressException":
            self._doubt = error if isinstance(error, NoAnswer | ServerFault) else _doubtful(error)
        pause = self._pause(error)
        if pause is None or pause + _LEAST_ATTEMPT_S >= self._deadline.left():
            raise self._doubt or error
        return pause

    def _pause(self, error: RateLimiterUnavailable) -> float | None:
        if isinstance(error, NotSent):
            self._connects += 1
            return 0.0 if self._connects == 1 else None
        if not isinstance(error, Throttled) and not self._repeatable:
            return None
        if isinstance(error, NoAnswer) and not self._pauses:
            self._pauses = 1
            return 0.0
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**self._pauses)
        self._pauses += 1
        return random.uniform(0, longest)


def _doubtful(error: RateLimiterUnavailable) -> NoAnswer:
    return NoAnswer(str(error), cause=error)
