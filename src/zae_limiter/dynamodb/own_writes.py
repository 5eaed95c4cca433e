"""Which namespaces this client has changed a moment ago."""

from __future__ import annotations

import threading
import time

from zae_limiter.concurrency.fork import renew_after_fork

WITHIN_S = 10.0  # copies that lag more than that are an outage
MAX_NAMESPACES = 10_000


class OwnWrites:
    """A copy of the store may be behind: what was changed here is read consistently for a while."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers

    def note(self, namespace_id: str) -> None:
        """Something was changed there, or may have been."""
        with self._lock:
            self._until.pop(namespace_id, None)
            self._until[namespace_id] = time.monotonic() + WITHIN_S
            if len(self._until) > MAX_NAMESPACES:
                del self._until[next(iter(self._until))]

    def is_recent(self, namespace_id: str) -> bool:
        until = self._until.get(namespace_id)
        return until is not None and time.monotonic() < until
