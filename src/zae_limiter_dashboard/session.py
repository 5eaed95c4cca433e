"""Sessions: a random token of the command line is exchanged for a cookie."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable

TOKEN_BYTES = 32
SESSION_S = 12 * 3600  # a working day; then the link of the command opens a new session
MAX_SESSIONS = 100  # the oldest ends if there are more, so that memory is bounded


class Sessions:
    """The sessions of one server. Only hashes of their secrets are kept."""

    def __init__(
        self, token: str, port: int, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._token = token
        self._seconds = seconds
        self._ends: dict[str, float] = {}  # by the hash of the secret, oldest first
        self._lock = threading.Lock()
        # Browsers share cookies between the ports of a host, so the name contains the port.
        self.cookie_name = f"zael_dashboard_{port}"

    @staticmethod
    def new_token() -> str:
        """Return a random token for the URL that the command prints."""
        return secrets.token_urlsafe(TOKEN_BYTES)

    def open(self, token: str) -> str | None:
        """Return the secret of a new session; None if the token is wrong."""
        # JSON may contain halves of characters, which plain UTF-8 has no bytes for.
        given = token.encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(given, self._token.encode()):
            return None
        secret = secrets.token_urlsafe(TOKEN_BYTES)
        with self._lock:
            self._ends[_digest(secret)] = self._seconds() + SESSION_S
            while len(self._ends) > MAX_SESSIONS:
                del self._ends[next(iter(self._ends))]
        return secret

    def knows(self, secret: str | None) -> bool:
        """Tell whether a cookie belongs to a session that has not ended."""
        if not secret:
            return False
        with self._lock:
            end = self._ends.get(_digest(secret))
        return end is not None and self._seconds() < end

    def close(self, secret: str | None) -> None:
        """End a session."""
        if secret:
            with self._lock:
                self._ends.pop(_digest(secret), None)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
