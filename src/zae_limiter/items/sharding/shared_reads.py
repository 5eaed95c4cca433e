"""One read of a bucket's shards at a time: callers that want the same wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from zae_limiter.items.stored.keys import BucketId
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.runtime.waiter import Wakeable

LOST_S = 10.0  # a reader that is silent for this long is considered dead


class SharedReads:
    """The reads in progress. Shared by all tasks and threads."""

    def __init__(self) -> None:
        self._reads: dict[BucketId, tuple[float, list[Wakeable]]] = {}
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._reads = {}  # the parent's readers do not exist in the child

    def join(self, bucket_id: BucketId, waiter: Callable[[], Wakeable]) -> Wakeable | None:
        """Return a waiter for the read in progress; None if the caller has to read."""
        with self._lock:
            read = self._reads.get(bucket_id)
            if read is None or time.monotonic() - read[0] > LOST_S:
                self._reads[bucket_id] = (time.monotonic(), [])
                return None
            read[1].append(waiter())
            return read[1][-1]

    def done(self, bucket_id: BucketId) -> None:
        """End a read and wake its waiters."""
        with self._lock:
            _, waiting = self._reads.pop(bucket_id, (0.0, []))
        for waiter in waiting:
            waiter.wake()
