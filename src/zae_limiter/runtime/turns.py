"""Paced cancellation: tasks that a program cancels at one moment are cancelled one by one.

Otherwise all of them would clean up in one step of the event loop: 16,000 callers that give back
their tokens would stop every other task for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from zae_limiter.runtime.locks import SignalSafeLock


class PacedFuture(asyncio.Future[None]):
    """A future whose cancellation waits for its turn among those of its event loop.

    ``Task.cancel`` cancels the future that the task awaits. ``cancel`` of this future returns True,
    and the future is cancelled a little later. A result that comes before that is ignored.
    """

    _is_cancelling = False
    _message: Any | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        if self.done():
            return False
        if not self._is_cancelling:
            self._is_cancelling, self._message = True, msg
            loop = self.get_loop()
            _turns_of(loop).enter(loop, self.cancel_now)
        return True

    def set_result(self, result: None) -> None:
        if not self._is_cancelling:
            super().set_result(result)

    def cancel_now(self) -> None:
        """Cancel the future at once, unless it is done."""
        super().cancel(self._message)


async def anext_turn() -> None:
    """Return in a step of the event loop in which no other caller of this function goes on."""
    loop = asyncio.get_running_loop()
    has_turn: asyncio.Future[None] = loop.create_future()

    def go_on() -> None:
        if not has_turn.done():
            has_turn.set_result(None)

    _turns_of(loop).enter(loop, go_on)
    await has_turn


class _Turns:
    """Calls that let one task of an event loop go on: one in each step of the loop."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._is_busy = False

    def enter(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        """Make a call now, or in its turn if another one was made in this step of the loop."""
        if self._is_busy:
            self._calls.append(call)
        else:
            self._is_busy = True
            call()
            loop.call_soon(self._go_on, loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._calls:
            self._is_busy = False
            return
        self._calls.popleft()()
        loop.call_soon(self._go_on, loop)


_guard = SignalSafeLock()
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns_of(loop: asyncio.AbstractEventLoop) -> _Turns:
    with _guard:
        turns = _turns.get(loop)
        if turns is None:
            turns = _turns[loop] = _Turns()
        return turns
