"""The client that memory and SQLite supply, and ports whose methods run operations by it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from zae_limiter.clock import Deadline
from zae_limiter.embedded.tables import Listing, Tables
from zae_limiter.runtime.finishing import Receipt

P = ParamSpec("P")
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
        """Return the transactions of several callers, their callers, and the largest number."""

    async def close(self) -> None:
        """Wait for the operations in progress, then close the store."""


class Port:
    """A port over a client. ``_async.ports`` says what each of its methods promises."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client


def reads(
    operation: Callable[Concatenate[Tables, P], T],
) -> Callable[Concatenate[Port, P], Coroutine[Any, Any, T]]:
    """Return a method of a port that runs a short operation on a snapshot."""

    async def method(self: Port, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._client.read(partial(operation, **kwargs), args)

    return method


def lists(
    operation: Callable[Concatenate[Tables, P], Listing[T]],
) -> Callable[Concatenate[Port, P], Coroutine[Any, Any, T]]:
    """Return a method of a port that runs a listing."""

    async def method(self: Port, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._client.list(partial(operation, **kwargs), args)

    return method


def writes(
    operation: Callable[Concatenate[Tables, P], T],
) -> Callable[Concatenate[Port, P], Coroutine[Any, Any, T]]:
    """Return a method of a port that runs an operation in one transaction."""

    async def method(self: Port, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._client.write(partial(operation, **kwargs), args)

    return method
