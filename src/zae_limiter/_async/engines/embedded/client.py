"""What memory and SQLite supply: a client that runs operations in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from zae_limiter.clock import Deadline
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.embedded.tables import Listing

T = TypeVar("T")


class EmbeddedClient(Protocol):
    """Runs operations of ``zae_limiter.embedded``: functions of the tables, then of ``args``."""

    async def write(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        receipt: Receipt[T] | None = None,
        *,
        must_run: bool = False,
        deadline: Deadline | None = None,
    ) -> T:
        """Run an operation in one transaction, all or nothing.

        ``receipt`` holds the result if and only if the transaction was committed. With
        ``must_run`` the operation is run even if its caller is cancelled. A store that waits for
        its lock does so until the ``deadline``; None stands for its request timeout.
        """

    async def read(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        deadline: Deadline | None = None,
    ) -> T:
        """Run a short operation on a snapshot of the store."""

    async def list(self, operation: Callable[..., Listing[T]], args: tuple[Any, ...]) -> T:
        """Run a listing, each page of it on a snapshot; no other call waits for longer."""

    def groups(self) -> tuple[int, int, int]:
        """Transactions of several callers, how many callers shared one, and the most that did."""

    async def close(self) -> None:
        """Wait for the operations in progress, then close the store."""
