"""The connections to a SQLite file.

SQLite does not allow a connection to be carried across a fork. So all are closed before a fork, and
opened again by the next operation, in the parent and in the child.
"""

from __future__ import annotations

import sqlite3
import time

from zae_limiter.embedded.sqlite.tables import SqliteTables
from zae_limiter.runtime.locks import SignalSafeLock

CACHED_STATEMENTS = 128  # more than there are, so each is prepared once
FORK_WAIT_S = 1.0  # a page or a transaction takes milliseconds


class Session:
    """One connection, its tables, and the lock that is held while it is in use."""

    def __init__(self) -> None:
        self.lock = SignalSafeLock()
        self.connection: sqlite3.Connection | None = None
        self.tables: SqliteTables | None = None
        self.paused = False

    def pause(self, deadline: float) -> None:
        """Keep other threads out, unless a thread is using the connection."""
        if not self.lock.is_held_here():
            self.paused = self.lock.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self.lock.release()

    def close(self) -> None:
        connection, self.connection, self.tables = self.connection, None, None
        if connection is not None:
            connection.close()


class Connections:
    """One connection for writes, one for short lookups, and one for listings."""

    def __init__(self, path: str, timeout_s: float, *, synchronous: str, wal_bytes: int) -> None:
        self.writer = Session()
        self.lookup = Session()
        self.listing = Session()
        self.fork_failed = False
        self._path = path
        self._timeout_s = timeout_s
        self._pragmas = (
            f"PRAGMA synchronous = {synchronous}",
            f"PRAGMA journal_size_limit = {wal_bytes}",
        )

    def connect(self, session: Session) -> tuple[sqlite3.Connection, SqliteTables]:
        """Open a connection, which creates a missing file."""
        session.connection = sqlite3.connect(
            self._path,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
        )
        for pragma in self._pragmas:
            session.connection.execute(pragma)
        session.tables = SqliteTables(session.connection)
        return session.connection, session.tables

    def close(self) -> None:
        """Close all connections, unless a fork has copied them while they were in use."""
        if not self.fork_failed:
            for session in self._all:
                session.close()

    def before_fork(self) -> None:
        """Close all connections as soon as none is in use; wait for at most a second."""
        deadline = time.monotonic() + FORK_WAIT_S
        for session in self._all:
            session.pause(deadline)
        self.fork_failed = not all(session.paused for session in self._all)
        if not self.fork_failed:
            for session in self._all:
                session.close()

    def after_fork_in_parent(self) -> None:
        self.fork_failed = False
        for session in self._all:
            session.resume()

    def after_fork(self) -> None:
        for session in self._all:
            session.paused = False  # the lock renews itself

    @property
    def _all(self) -> tuple[Session, ...]:
        return self.writer, self.lookup, self.listing
