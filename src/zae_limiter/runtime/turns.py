"""Turns: of the tasks that go on at one moment, one goes on in each step of the event loop.

Tasks that a program cancels together would otherwise clean up in one step: 16,000 callers that give
back their tokens would stop every other task for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

from zae_limiter.runtime.locks import SignalSafeLock


async def anext_turn() -> None:
    """Return in a step of the event loop in which no other caller of this function goes on."""
    loop = asyncio.get_running_loop()
    has_turn: asyncio.Future[None] = loop.create_future()
    _turns_of(loop).enter(has_turn)
    await has_turn


class _Turns:
    """The tasks of an event loop that wait for their turn."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_busy = False

    def enter(self, has_turn: asyncio.Future[None]) -> None:
        """End the future now, or in its turn if another one was ended in this step of the loop."""
        if self._is_busy:
            self._waiting.append(has_turn)
        else:
            self._is_busy = True
            has_turn.set_result(None)
            has_turn.get_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        while self._waiting:
            has_turn = self._waiting.popleft()
            if not has_turn.done():  # its task was not cancelled once more
                has_turn.set_result(None)
                has_turn.get_loop().call_soon(self._go_on)
                return
        self._is_busy = False


_guard = SignalSafeLock()
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns_of(loop: asyncio.AbstractEventLoop) -> _Turns:
    with _guard:
        turns = _turns.get(loop)
        if turns is None:
            turns = _turns[loop] = _Turns()
        return turns
