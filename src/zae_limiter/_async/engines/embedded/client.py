"""What the ports need of an embedded store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class EmbeddedClient(Protocol):
    """Runs operations ``(tables, *args)`` of ``zae_limiter.embedded``."""

    async def write(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        receipt: list[T] | None = None,
        *,
        must_run: bool = False,
    ) -> T:
        """Run in one transaction, all or nothing.

        ``receipt`` holds the result if and only if the transaction stands. With ``must_run`` a
        cancelled caller's operation is carried out all the same.
        """

    async def read(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run something small on a consistent view."""

    async def list(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run something that may take long on a consistent view, holding nobody up."""

    async def close(self) -> None:
        """Finish what is under way."""
