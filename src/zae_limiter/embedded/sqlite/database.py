"""One SQLite file: a connection that writes in ordered batches and two that read."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from zae_limiter.concurrency.worker import StoreOperation
from zae_limiter.embedded.sqlite.errors import STORE_ERRORS, is_busy, translate
from zae_limiter.embedded.sqlite.file_lock import FileLock
from zae_limiter.embedded.sqlite.schema import check_owner, migrate
from zae_limiter.embedded.sqlite.tables import SqliteTables
from zae_limiter.exceptions import (
    InfrastructureError,
    InfrastructureNotFoundError,
    RateLimiterUnavailable,
    ValidationError,
)

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
CACHED_STATEMENTS = 128  # more than there are: each is prepared once
TOGETHER_S = 0.05  # timeouts this close to each other are reported together, in one pass


class SqliteDatabase:
    """An open file. Not thread-safe: workers make sure that each connection has one caller."""

    def __init__(self, path: str, synchronous: str, timeout_s: float) -> None:
        if synchronous.upper() not in SYNCHRONOUS:
            raise ValidationError(
                "synchronous", synchronous, f"must be one of {', '.join(SYNCHRONOUS)}"
            )
        self.path = path
        self._timeout_s = timeout_s
        self._busy_ms = -1
        self._pid = os.getpid()
        self._connections: list[sqlite3.Connection] = []
        self._lock: FileLock | None = None
        _check_place(path)
        try:
            self._open(synchronous)
        except BaseException as error:
            self.close()
            if isinstance(error, STORE_ERRORS):
                raise translate(error, path) from error
            raise

    def close(self) -> None:
        """Close all connections; the last process to close merges the write-ahead log."""
        if os.getpid() == self._pid:
            for connection in self._connections:
                connection.close()
        if self._lock is not None:
            self._lock.close()

    # --- writing

    def write(self, tickets: Sequence[StoreOperation]) -> None:
        """Run all tickets in one transaction; an error is set on its ticket, not raised."""
        assert self._lock is not None
        waiting = list(tickets)
        try:
            while waiting and not self._lock.acquire(min(ticket.deadline for ticket in waiting)):
                waiting = self._patient(waiting, self._held_by_another())
            self._write_locked(waiting)
        finally:
            self._lock.release()

    def write_one(self, ticket: StoreOperation) -> None:
        """Run one ticket in the calling thread; its error, and any interrupt, is raised."""
        self._check_process()
        assert self._lock is not None
        try:
            try:
                if not self._lock.acquire(ticket.deadline):
                    raise self._held_by_another()
                self._transaction([ticket])
            finally:
                self._lock.release()
        except STORE_ERRORS as error:
            raise translate(error, self.path) from error
        finally:
            self._lock.release()  # again: an interrupt may have hit the first release

    def _patient(self, tickets: Sequence[StoreOperation], error: Exception) -> list[StoreOperation]:
        """Fail the tickets whose deadline is next, or close to it; return the others."""
        soon = max(time.monotonic(), min(ticket.deadline for ticket in tickets)) + TOGETHER_S
        for ticket in tickets:
            if ticket.deadline <= soon:
                ticket.fail(error)
        return [ticket for ticket in tickets if ticket.deadline > soon]

    def _write_locked(self, tickets: Sequence[StoreOperation]) -> None:
        if not tickets:
            return
        try:
            self._transaction(tickets)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            if len(tickets) == 1:
                tickets[0].fail(translate(error, self.path))
            elif is_busy(error):
                self._write_locked(self._patient(tickets, translate(error, self.path)))
            else:
                for ticket in tickets:  # one of them caused it: give each its own transaction
                    self._write_locked([ticket])

    def _transaction(self, tickets: Sequence[StoreOperation]) -> None:
        writer = self._writer
        try:
            if writer.in_transaction:  # an interrupt hit right after BEGIN
                writer.execute("ROLLBACK")
            self._set_busy_timeout(min(ticket.deadline for ticket in tickets))
            writer.execute("BEGIN IMMEDIATE")
            self._tables.begin()
            for ticket in tickets:
                ticket.run(self._tables)
            writer.execute("COMMIT")
        except BaseException as error:
            # After an interrupt behind the COMMIT the receipts are right: it is committed. On an
            # error of its own SQLite may have rolled back already.
            if writer.in_transaction or isinstance(error, sqlite3.Error):
                for ticket in tickets:
                    ticket.take_back()
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    def _set_busy_timeout(self, deadline: float) -> None:
        """Wait no longer than the deadline for programs that use SQLite's lock but not ours."""
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        if abs(left_ms - self._busy_ms) > 10:
            self._writer.execute(f"PRAGMA busy_timeout = {left_ms}")
            self._busy_ms = left_ms

    def _held_by_another(self) -> RateLimiterUnavailable:
        return RateLimiterUnavailable(
            f"another process held {self.path!r} for more than {self._timeout_s:g} s; "
            "look for a stopped process, or raise request_timeout"
        )

    # --- reading

    def lookup(self, ticket: StoreOperation) -> None:
        """Run a short read."""
        self._read(self._lookup, self._lookup_tables, ticket)

    def listing(self, ticket: StoreOperation) -> None:
        """Run a read that may take long; only other listings wait for it."""
        self._read(self._listing, self._listing_tables, ticket)

    def _read(
        self, reader: sqlite3.Connection, tables: SqliteTables, ticket: StoreOperation
    ) -> None:
        """Run one ticket on a snapshot of the file."""
        self._check_process()
        try:
            if reader.in_transaction:  # an interrupt hit right after BEGIN
                reader.execute("ROLLBACK")
            reader.execute("BEGIN")
            try:
                tables.begin()
                ticket.run(tables)
            finally:
                reader.execute("COMMIT")
        except STORE_ERRORS as error:
            raise translate(error, self.path) from error

    # --- opening

    def _open(self, synchronous: str) -> None:
        self._writer = self._connect(synchronous)
        check_owner(self._writer, self.path)  # before anything of ours is put beside the file
        self._lock = FileLock(self.path)
        self._prepare(self._lock)
        self._lookup = self._connect(synchronous)
        self._listing = self._connect(synchronous)
        self._tables = SqliteTables(self._writer)
        self._lookup_tables = SqliteTables(self._lookup)
        self._listing_tables = SqliteTables(self._listing)

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
        )
        self._connections.append(connection)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    def _prepare(self, lock: FileLock) -> None:
        try:
            if not lock.acquire(time.monotonic() + self._timeout_s):
                raise self._held_by_another()
            self._writer.execute("PRAGMA journal_mode = WAL")
            migrate(self._writer, self.path)
        finally:
            lock.release()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise InfrastructureError(
                f"{self.path!r} was opened before a fork; open the repository in each process"
            )


def _check_place(path: str) -> None:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InfrastructureNotFoundError(path, f"the folder {str(folder)!r} is missing; create it")
    if Path(path).is_dir():
        raise ValidationError("url", path, "is a folder; name a file")
