"""Namespaces that this client changed, or saw to be active, a moment ago."""

from __future__ import annotations

import time

from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.runtime.locks import SignalSafeLock

RECENT_S = 10.0  # a replica of DynamoDB lags by far less, except in an outage
ACTIVE_S = 10.0  # a client may write this long to a namespace that is being purged
MAX_NAMESPACES = 10_000  # bounds memory; the namespace noted longest ago is dropped first


class RecentChanges:
    """Tells which namespaces are read consistently, so that a client sees its own changes.

    An eventually consistent read, at half the price, may miss a write of a moment ago.
    """

    def __init__(self) -> None:
        self._until_s: BoundedDict[str, float] = BoundedDict(MAX_NAMESPACES)
        self._lock = SignalSafeLock()

    def note(self, namespace_id: str) -> None:
        """Remember that the namespace was changed just now, or may have been."""
        with self._lock:
            self._until_s.put(namespace_id, time.monotonic() + RECENT_S)

    def is_recent(self, namespace_id: str) -> bool:
        until_s = self._until_s.get(namespace_id)
        return until_s is not None and time.monotonic() < until_s


class ActiveNamespaces:
    """Remembers namespaces that are not being purged, so that they need not be read again."""

    def __init__(self) -> None:
        self._until_s: BoundedDict[str, float] = BoundedDict(MAX_NAMESPACES)
        self._lock = SignalSafeLock()

    def note(self, namespace_id: str) -> None:
        """Remember that the namespace was seen without the mark of a purge."""
        with self._lock:
            self._until_s.put(namespace_id, time.monotonic() + ACTIVE_S)

    def forget(self, namespace_id: str) -> None:
        with self._lock:
            self._until_s.put(namespace_id, 0.0)

    def is_known(self, namespace_id: str) -> bool:
        until_s = self._until_s.get(namespace_id)
        return until_s is not None and time.monotonic() < until_s
