"""Calls that block, and calls that may take too long."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


async def ablocking(call: Callable[..., T], *args: Any) -> T:
    """Run a call that blocks without blocking the event loop."""
    import asyncio

    return await asyncio.to_thread(call, *args)


def blocking(call: Callable[..., T], *args: Any) -> T:
    """Run it."""
    return call(*args)


async def awithin(seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Raises TimeoutError if the call takes longer."""
    import asyncio

    return await asyncio.wait_for(call(), seconds)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Raises TimeoutError if the call takes longer; it ends by itself, unheard."""
    results: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            results.put((None, error))

    threading.Thread(target=run, daemon=True, name="zael-within").start()
    try:
        result, error = results.get(timeout=seconds)
    except Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


async def apause() -> None:
    """Let others run between two pieces of long work."""
    import asyncio

    await asyncio.sleep(0)


def pause() -> None:
    """Threads take turns by themselves."""
