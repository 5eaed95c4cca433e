"""The errors of DynamoDB that no other store has."""

from __future__ import annotations

from typing import Any, NamedTuple

from zae_limiter.exceptions import InfrastructureError, PermissionDenied


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
