"""How a call can end other than well. The names say what is known about the write."""

from __future__ import annotations

from typing import Any, NamedTuple

from zae_limiter.exceptions import InfrastructureError, PermissionDenied, RateLimiterUnavailable


class NotSent(RateLimiterUnavailable):
    """The store cannot have seen the request."""


class NoAnswer(RateLimiterUnavailable):
    """Sent, at least in part, and no usable answer: may be carried out, even later.

    ``reused_connection`` says that a connection which had carried requests before ended without a
    byte of an answer. Nearly always the server had closed it while it was idle, and the request
    was never read.
    """

    def __init__(
        self,
        message: str,
        *,
        reused_connection: bool = False,
        cause: BaseException | None = None,
    ) -> None:
        self.reused_connection = reused_connection
        super().__init__(message, cause=cause)


class ServerFault(RateLimiterUnavailable):
    """Answered with a fault of the server's own: may have been carried out."""


class Throttled(RateLimiterUnavailable):
    """Refused for throughput or a conflicting transaction: not carried out.

    ``of_item`` says that it may be the item itself that is asked for too often, and not the table
    or the account.
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
    """The request itself was refused, for good; ``code`` is DynamoDB's name for the reason."""

    def __init__(self, message: str, *, code: str) -> None:
        self.code = code
        super().__init__(message)


class Denied(PermissionDenied):
    """The store said no; ``remedy`` is what may help: "clock", "credentials", "rights" or ""."""

    def __init__(self, message: str, *, code: str, remedy: str = "") -> None:
        self.code = code
        self.remedy = remedy
        super().__init__(message)


class ConditionFailed(Exception):
    """The condition of a write did not hold; ``item`` is what stands there, if asked for."""

    def __init__(self, item: dict[str, Any] | None) -> None:
        self.item = item
        super().__init__("the condition of a write did not hold")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.item,)


class Reason(NamedTuple):
    """Why an action of a transaction was not carried out; "None" if it was not to blame."""

    code: str
    item: dict[str, Any] | None
    message: str = ""


class TransactionCanceled(Exception):
    """A transaction was not carried out; one reason per action."""

    def __init__(self, reasons: tuple[Reason, ...]) -> None:
        self.reasons = reasons
        codes = ", ".join(reason.code for reason in reasons)
        super().__init__(f"a transaction was cancelled: {codes}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reasons,)
