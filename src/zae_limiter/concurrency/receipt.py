"""Receipts: an engine notes its outcome there, even if the caller gets no answer."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _NotCommitted:
    def __repr__(self) -> str:
        return "NOT_COMMITTED"


NOT_COMMITTED: Any = _NotCommitted()


class Receipt(Generic[T]):
    """Holds the outcome of a call as soon as the outcome is final.

    It holds a grant if, and only if, the charge is committed. A caller that was cancelled or
    interrupted before it got the answer looks here, and undoes a grant; a rejection needs nothing.
    ``outcome`` is set by one assignment, which an interrupt cannot divide.
    """

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: T = NOT_COMMITTED

    @property
    def has_outcome(self) -> bool:
        return self.outcome is not NOT_COMMITTED

    def withdraw(self) -> None:
        """Remove the outcome, since the transaction was rolled back."""
        self.outcome = NOT_COMMITTED
