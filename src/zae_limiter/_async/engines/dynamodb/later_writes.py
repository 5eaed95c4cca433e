"""Writes that no caller waits for: hours that are announced, resources that are registered.

They serve queries about a whole resource or namespace, never a charge, so an acquire returns before
they are made. They are made at once in the background, and are harmless if they are repeated or
come late. A client that queries waits for its own; closing the engine waits for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import NamedTuple

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter.concurrency.background import ABackground
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.transport.calls import Deadline

AT_ONCE = 16  # writes side by side: connections and throughput are there for acquires
MAX_WAITING = 10_000  # bounds memory in an outage; what is beyond that is not written
RETRY_AFTER_S = 60.0  # after a failure: an outage must not be met with more calls
MAX_ATTEMPTS = 5  # at one write, for one that is refused every time
# Usage is kept for a day at least: an hour is not announced when its row may have expired.
MAX_AGE_S = 6 * 3600.0
DRAIN_S = 1.0  # how long a query, or closing, waits for writes that are under way

logger = quiet_logger(__name__)


class LaterWrite(NamedTuple):
    """A write that is still to be made, until when, and how often it has failed."""

    write: Callable[[Deadline], Awaitable[None]]
    until_s: float
    failures: int = 0


class LaterWrites:
    """Makes writes in the background; one that failed is tried again with a later charge.

    ``failed`` are those, by what they write.
    """

    def __init__(
        self, client: DynamoClient, parallel: Parallel, retry_after_s: float = RETRY_AFTER_S
    ) -> None:
        self._client = client
        self._background = ABackground(parallel)
        self._retry_after_s = retry_after_s
        self._retry_at_s = 0.0
        self._waiting: dict[Hashable, LaterWrite] = {}
        self._making: set[Hashable] = set()
        self._workers: set[object] = set()
        self.failed: dict[Hashable, LaterWrite] = {}

    def add(self, key: Hashable, write: Callable[[Deadline], Awaitable[None]]) -> None:
        """Make a write soon. ``key`` says what it writes: the same is written once."""
        if key not in self._making and len(self._waiting) + len(self.failed) < MAX_WAITING:
            self._waiting[key] = LaterWrite(write, time.monotonic() + MAX_AGE_S)
            self._start()

    def retry(self) -> None:
        """Try again what has failed, if that was long enough ago."""
        if time.monotonic() >= self._retry_at_s:
            self._retry_at_s = time.monotonic() + self._retry_after_s
            self._take_failed()
            self._start()

    async def drain(self, seconds: float = DRAIN_S) -> None:
        """Return when all writes were tried, or after that long. Raises no outage."""
        if self.failed:
            self.retry()
        self._start()
        if self._background.running:
            await self._background.wait(seconds)

    async def close(self, seconds: float = DRAIN_S) -> None:
        """Try everything a last time."""
        self._take_failed()
        await self.drain(seconds)

    def _take_failed(self) -> None:
        while self.failed:
            try:
                key, later = self.failed.popitem()
            except KeyError:  # another thread took it
                return
            if time.monotonic() < later.until_s:
                self._waiting.setdefault(key, later)

    def _start(self) -> None:
        """Start as many workers as there are writes waiting, within bounds."""
        if not self._background.running:
            self._workers.clear()  # of a loop that was closed, or of the parent of a fork
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
                except KeyError:  # another thread took it
                    break
                await self._make(key, later)
        finally:
            self._workers.discard(worker)
        if self._waiting:  # added after the last look, when all workers still seemed busy
            self._start()

    async def _make(self, key: Hashable, later: LaterWrite) -> None:
        is_made = False
        self._making.add(key)
        try:
            await later.write(self._client.deadline())
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
