"""Items that DynamoDB has throttled, and when to reshard again."""

from __future__ import annotations

import time

from zae_limiter.items.stored.keys import ShardId
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.locks import SignalSafeLock

THROTTLED_S = 5.0  # after that the reason has probably gone
COOLDOWN_S = 2.0  # between two attempts to split or merge around one item
MAX_ITEMS = 10_000  # far more than one client can keep throttled


class ThrottledItems:
    """The items whose writes were throttled within the last seconds.

    ``until_s`` is nearly always empty, which callers may check before they ask for an item.
    """

    def __init__(self) -> None:
        self.until_s: BoundedDict[ShardId, float] = BoundedDict(MAX_ITEMS)
        self._lock = SignalSafeLock()

    def add(self, shard_id: ShardId) -> None:
        with self._lock:
            self.until_s.put(shard_id, time.monotonic() + THROTTLED_S)

    def __contains__(self, shard_id: ShardId) -> bool:
        return time.monotonic() < self.until_s.get(shard_id, 0.0)

    def discard(self, shard_id: ShardId) -> None:
        with self._lock:
            self.until_s.pop(shard_id, None)


class ReshardCooldown:
    """Let one caller at a time try to reshard around an item, and not too often."""

    def __init__(self) -> None:
        self._until_s: BoundedDict[ShardId, float] = BoundedDict(MAX_ITEMS)
        self._lock = SignalSafeLock()

    def begin(self, shard_id: ShardId) -> bool:
        """Start an attempt; False if one is in progress or was made a moment ago."""
        with self._lock:
            now_s = time.monotonic()
            if now_s < self._until_s.get(shard_id, 0.0):
                return False
            self._until_s.put(shard_id, now_s + COOLDOWN_S)
            return True
