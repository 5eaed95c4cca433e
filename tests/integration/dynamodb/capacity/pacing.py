"""Time for clients that pause at random and overlap: what nobody would notice is skipped."""

import asyncio
import heapq
import itertools
import time
from contextlib import asynccontextmanager, suppress


class Pacing:
    """A clock in place of the host's, and the turns of all who share it.

    While anybody has its turn it runs with the host's time, ``slowdown`` times slower, so that a
    busy machine looks like a quick one. While nobody has, it jumps to the next. So turns overlap
    as they would, and a long quiet run takes no longer than its turns.
    """

    def __init__(self, start_ms, slowdown):
        self._now_ms = float(start_ms)
        self._slowdown = slowdown
        self._seen_s = time.monotonic()
        self._under_way = 0
        self._waiting = []
        self._numbers = itertools.count()
        self._changed = asyncio.Event()

    def __call__(self):
        now_s = time.monotonic()
        if self._under_way:
            self._now_ms += (now_s - self._seen_s) * 1000 / self._slowdown
        self._seen_s = now_s
        return int(self._now_ms)

    @asynccontextmanager
    async def turn(self, at_ms):
        """The block begins then, or now if that is over."""
        awake = asyncio.Event()
        heapq.heappush(self._waiting, (at_ms, next(self._numbers), awake))
        self._changed.set()
        await awake.wait()
        try:
            yield
        finally:
            self()
            self._under_way -= 1
            self._changed.set()

    async def run(self, *clients):
        """Until all of them are done."""
        driver = asyncio.ensure_future(self._drive())
        try:
            await asyncio.gather(*clients)
        finally:
            driver.cancel()

    async def _drive(self):
        while True:
            self._changed.clear()
            self._wake_who_is_due()
            left_s = None
            if self._waiting:
                left_s = (self._waiting[0][0] - self._now_ms) * self._slowdown / 1000
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()

    def _wake_who_is_due(self):
        if self._waiting and not self._under_way:
            self._now_ms = max(self._now_ms, self._waiting[0][0])
        self()
        while self._waiting and self._waiting[0][0] <= self._now_ms:
            _, _, awake = heapq.heappop(self._waiting)
            self._under_way += 1
            awake.set()
