"""The errors of a call to a store that is far away: what is known about the write."""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import RateLimiterUnavailable


class NotSent(RateLimiterUnavailable):
    """The store cannot have seen the request."""


class NoAnswer(RateLimiterUnavailable):
    """A request was sent at least in part, and got no usable answer: it may still be carried out.

    ``closed`` says that the other side has closed the connection, or has sent a damaged answer:
    then nothing of the request is left in the network. ``closed_idle`` says that the connection
    had carried requests before, and ended without a byte of an answer. Nearly always the server
    had closed the idle connection, and never read the request.
    """

    def __init__(
        self,
        message: str,
        *,
        closed: bool = False,
        closed_idle: bool = False,
        cause: BaseException | None = None,
    ) -> None:
        self.closed = closed or closed_idle
        self.closed_idle = closed_idle
        super().__init__(message, cause=cause)


class ServerFault(RateLimiterUnavailable):
    """The server answered with a fault of its own: the request may have been carried out."""


class Throttled(RateLimiterUnavailable):
    """A request was refused for throughput or a conflict, and was not carried out.

    ``of_item`` says that the item itself, not the table or the account, may have too many requests.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "ThrottlingException",
        of_item: bool = True,
        cause: BaseException | None = None,
    ) -> None:
        self.code = code
        self.of_item = of_item
        super().__init__(message, cause=cause)


class ConditionFailed(Exception):
    """The condition of a write did not hold; ``item`` is the stored item, if it was asked for."""

    def __init__(self, item: dict[str, Any] | None) -> None:
        self.item = item
        super().__init__("the condition of a write did not hold")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.item,)


class Conflict(Exception):
    """Nothing of a group was written, since another writer has changed one of its items.

    ``items`` are the stored items of the writes whose conditions did not hold, where known.
    """

    def __init__(self, items: tuple[dict[str, Any] | None, ...] = ()) -> None:
        self.items = items
        super().__init__("another writer has changed an item of the group")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.items,)
