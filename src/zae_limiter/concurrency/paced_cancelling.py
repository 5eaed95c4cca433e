"""Paced cancellation: tasks that a program cancels at one moment are cancelled one by one.

Otherwise all of them would clean up in one step of the event loop: 16,000 callers that give back
their tokens would stop every other task for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from weakref import WeakKeyDictionary

from zae_limiter.concurrency.locks import SignalSafeLock


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
            _turns_of(self.get_loop()).enter(self)
        return True

    def set_result(self, result: None) -> None:
        if not self._is_cancelling:
            super().set_result(result)

    def cancel_now(self) -> None:
        """Cancel the future at once, unless it is done."""
        super().cancel(self._message)


class _Turns:
    """The futures of one event loop that wait to be cancelled, one in each step of the loop."""

    def __init__(self) -> None:
        self._futures: deque[PacedFuture] = deque()
        self._is_busy = False

    def enter(self, future: PacedFuture) -> None:
        """Cancel a future now if no other was cancelled in this step of the loop, or queue it."""
        if self._is_busy:
            self._futures.append(future)
        else:
            self._is_busy = True
            future.cancel_now()
            future.get_loop().call_soon(self._go_on, future.get_loop())

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._futures and self._futures[0].done():
            self._futures.popleft()
        if not self._futures:
            self._is_busy = False
            return
        self._futures.popleft().cancel_now()
        loop.call_soon(self._go_on, loop)


_guard = SignalSafeLock()
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns_of(loop: asyncio.AbstractEventLoop) -> _Turns:
    with _guard:
        turns = _turns.get(loop)
        if turns is None:
            turns = _turns[loop] = _Turns()
        return turns
