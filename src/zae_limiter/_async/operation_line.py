"""The operations of one lease go on one after the other, in the order of their calls."""

from __future__ import annotations

import os
from contextlib import suppress

from zae_limiter.runtime.calls import acaller_id
from zae_limiter.runtime.waiter import AWaiter

# A waiting operation looks again after this time, in case an interrupt came before it was woken.
LOOK_S = 1.0


class LinePlace:
    """The place of one operation in the line of its lease; inside of the block it is the first.

    ``line`` is a list that the operations of a lease share. Only the methods of lists change it, so
    that an interrupt finds a place in the line or not in it.
    """

    __slots__ = ("_line", "caller", "process", "waiter")

    def __init__(self, line: list[LinePlace]) -> None:
        self._line = line
        self.caller = acaller_id()
        self.process = os.getpid()
        self.waiter: AWaiter | None = None

    async def __aenter__(self) -> None:
        try:
            self.join()
            if self._line[0] is not self:
                await self._wait()
        except BaseException:
            self.leave()
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            self.leave()
        except BaseException:
            self.leave()  # it may be called again
            raise

    def join(self) -> None:
        """Take the place now, if the block is entered later. Then ``leave`` on any error."""
        if self not in self._line:
            self._line.append(self)

    async def _wait(self) -> None:
        while self._has_to_wait():
            waiter = self.waiter = AWaiter()
            if self._has_to_wait():  # again, since who left meanwhile has not seen the waiter
                with suppress(TimeoutError):
                    await waiter.wait(LOOK_S)

    def _has_to_wait(self) -> bool:
        """Tell whether another operation is first.

        An operation of the same caller is never waited for, since a signal handler has interrupted
        it. Nor is one of the parent process after a fork: nobody ends it here.
        """
        first = self._line[0]
        return first.caller != self.caller and first.process == self.process

    def leave(self) -> None:
        """Leave the line and wake who is first now; a second time does nothing."""
        if self in self._line:
            self._line.remove(self)
        for first in self._line[:1]:
            if first.waiter is not None:
                first.waiter.wake()
