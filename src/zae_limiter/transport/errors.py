"""The errors of a call. Their names say what is known about the write."""

from __future__ import annotations

from typing import Any, NamedTuple

from zae_limiter.exceptions import InfrastructureError, PermissionDenied, RateLimiterUnavailable


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


class Refused(InfrastructureError):
    """The request was refused for good; ``code`` is DynamoDB's name for the reason."""

    def __init__(self, message: str, *, code: str) -> None:
        self.code = code
        super().__init__(message)


class Denied(PermissionDenied):
    """The caller has no permission; ``remedy`` may be "clock", "credentials", "rights" or ""."""

    def __init__(self, message: str, *, code: str, remedy: str = "") -> None:
        self.code = code
        self.remedy = remedy
        super().__init__(message)


class ConditionFailed(Exception):
    """The condition of a write did not hold; ``item`` is the stored item, if it was asked for."""

    def __init__(self, item: dict[str, Any] | None) -> None:
        self.item = item
        super().__init__("the condition of a write did not hold")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.item,)


class Reason(NamedTuple):
    """The reason why an action cancelled its transaction; its code is "None" if it did not."""

    code: str
    item: dict[str, Any] | None
    message: str = ""


class TransactionCanceled(Exception):
    """A transaction was not carried out; there is one reason per action."""

    def __init__(self, reasons: tuple[Reason, ...]) -> None:
        self.reasons = reasons
        codes = ", ".join(reason.code for reason in reasons)
        super().__init__(f"a transaction was cancelled: {codes}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reasons,)
