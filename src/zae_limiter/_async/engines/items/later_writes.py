"""Writes in the background that no caller waits for: announced hours, registered resources.

Only queries about a whole resource or namespace need these writes, so an acquire returns before
they are made. They are idempotent and may be late. A query waits for the writes of its own client;
closing the engine waits for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import NamedTuple

from zae_limiter._async.engines.items.port import ItemStore
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.background import ABackground
from zae_limiter.runtime.parallel import Parallel

AT_ONCE = 16  # parallel writes: acquires need connections and throughput, too
MAX_WAITING = 10_000  # bounds memory in an outage; further writes are dropped
RETRY_AFTER_S = 60.0  # after a failure, so that an outage does not cause more calls
MAX_ATTEMPTS = 5  # then a write that is refused every time is dropped
# Usage is kept for at least a day. An hour is not announced when its row may have expired.
MAX_AGE_S = 6 * 3600.0
DRAIN_S = 1.0  # a query, or closing, waits this long for writes in progress

logger = quiet_logger(__name__)


class LaterWrite(NamedTuple):
    """A pending write, the moment until which it may be made, and its number of failures."""

    write: Callable[[Deadline], Awaitable[None]]
    until_s: float
    failures: int = 0


class LaterWrites:
    """Makes writes in the background; a failed write is tried again with a later charge.

    ``failed``: failed writes by key.
    """

    def __init__(
        self, store: ItemStore, parallel: Parallel, retry_after_s: float = RETRY_AFTER_S
    ) -> None:
        self._store = store
        self._background = ABackground(parallel)
        self._retry_after_s = retry_after_s
        self._retry_at_s = 0.0
        self._waiting: dict[Hashable, LaterWrite] = {}
        self._making: set[Hashable] = set()
        self._workers: set[object] = set()
        self.failed: dict[Hashable, LaterWrite] = {}

    def add(self, key: Hashable, write: Callable[[Deadline], Awaitable[None]]) -> None:
        """Make a write soon. Writes with the same ``key`` are made once."""
        if key not in self._making and len(self._waiting) + len(self.failed) < MAX_WAITING:
            self._waiting[key] = LaterWrite(write, time.monotonic() + MAX_AGE_S)
            self._start()

    def retry(self) -> None:
        """Try failed writes again, if the last failure was long enough ago."""
        if time.monotonic() >= self._retry_at_s:
            self._retry_at_s = time.monotonic() + self._retry_after_s
            self._take_failed()
            self._start()

    async def drain(self, seconds: float = DRAIN_S) -> None:
        """Return when all writes were tried, or after ``seconds``. An outage raises no error."""
        if self.failed:
            self.retry()
        self._start()
        if self._background.running:
            await self._background.wait(seconds)

    async def close(self, seconds: float = DRAIN_S) -> None:
        """Try all pending writes a last time."""
        self._take_failed()
        await self.drain(seconds)

    def _take_failed(self) -> None:
        while self.failed:
            try:
                key, later = self.failed.popitem()
            except KeyError:  # another thread took the last one
                return
            if time.monotonic() < later.until_s:
                self._waiting.setdefault(key, later)

    def _start(self) -> None:
        """Start as many workers as there are writes waiting, within bounds."""
        if not self._background.running:
            self._workers.clear()  # they belong to a closed loop, or to the parent of a fork
            self._making.clear()
        for _ in range(min(len(self._waiting), AT_ONCE - len(self._workers))):
            worker = object()
            self._workers.add(worker)
            self._background.start(partial(self._work, worker))

    async def _work(self, worker: object) -> None:
        """Make writes until none is waiting."""
        try:
            while self._waiting:
                try:
                    key, later = self._waiting.popitem()
                except KeyError:  # another thread took the last one
                    break
                await self._make(key, later)
        finally:
            self._workers.discard(worker)
        if self._waiting:  # a write was added while all workers still seemed busy
            self._start()

    async def _make(self, key: Hashable, later: LaterWrite) -> None:
        is_made = False
        self._making.add(key)
        try:
            await later.write(self._store.deadline())
            is_made = True
        except ZAELimiterError:
            logger.debug("could not write %r, will retry", key, exc_info=True)
        except Exception:
            logger.warning("could not write %r, will retry", key, exc_info=True)
        finally:  # also if the task is cancelled: its loop ends before the client is closed
            self._making.discard(key)
            if not is_made:
                self._fail(key, later)

    def _fail(self, key: Hashable, later: LaterWrite) -> None:
        self._retry_at_s = time.monotonic() + self._retry_after_s
        if later.failures + 1 < MAX_ATTEMPTS:
            self.failed[key] = later._replace(failures=later.failures + 1)
