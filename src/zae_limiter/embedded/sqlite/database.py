"""One SQLite file: a connection that writes in ordered batches and two that read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zae_limiter.clock import SharedClock
from zae_limiter.embedded.sqlite.clock_row import join_time, keep_time
from zae_limiter.embedded.sqlite.connections import Connections, Session
from zae_limiter.embedded.sqlite.errors import (
    STORE_ERRORS,
    check_place,
    held_by_another,
    is_busy,
    is_read_only,
    translate,
)
from zae_limiter.embedded.sqlite.file_lock import FileLock
from zae_limiter.embedded.sqlite.file_options import FileOptions
from zae_limiter.embedded.sqlite.schema import check_owner, migrate
from zae_limiter.embedded.sqlite.store_file import StoreFile, WriteAheadLog
from zae_limiter.embedded.sqlite.tables import SqliteTables
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.runtime.locks import rest_during_fork
from zae_limiter.runtime.worker import StoreOperation

PAGE_PAUSE_S = 0.0005  # a page takes as long, so that a listing uses at most half a core
TOGETHER_S = 0.05  # timeouts this close to each other are reported together


class SqliteDatabase:
    """An open file. Not thread-safe: workers make sure that each connection has one caller.

    ``clock`` is set to the time that all processes share. It is None if another clock gives stamps.
    """

    def __init__(
        self,
        path: str,
        options: FileOptions,
        timeout_s: float,
        clock: SharedClock | None = None,
    ) -> None:
        self.path = path
        self.groups = GroupCounts()
        self._timeout_s = timeout_s
        self._clock = clock
        self._file = StoreFile(path)
        self._log = WriteAheadLog(self._file.path, options.wal_limit_mb)
        self._connections = Connections(
            self._file.path,
            timeout_s,
            synchronous=options.synchronous,
            wal_bytes=self._log.limit_bytes,
        )
        self._lock: FileLock | None = None
        self._busy_ms = -1
        check_place(path)
        try:
            self._open()
        except BaseException as error:
            self.close()
            if isinstance(error, STORE_ERRORS):
                raise translate(error, path) from error
            raise
        rest_during_fork(self._connections)

    def close(self) -> None:
        """Close all connections; the last process to close merges the write-ahead log."""
        self._connections.close()
        if self._lock is not None:
            self._lock.close()

    # --- writing

    def write(self, tickets: Sequence[StoreOperation]) -> None:
        """Run all tickets in one transaction; an error is set on its ticket, not raised."""
        assert self._lock is not None
        waiting = list(tickets)
        try:
            while waiting and not self._lock.acquire(min(ticket.deadline for ticket in waiting)):
                waiting = self._patient(waiting, held_by_another(self.path, self._timeout_s))
            self._write_locked(waiting)
        except STORE_ERRORS as error:  # the file lock failed; errors of SQLite are on the tickets
            for ticket in waiting:
                ticket.fail(translate(error, self.path))
        finally:
            self._lock.release()

    def write_one(self, ticket: StoreOperation) -> None:
        """Run one ticket in the calling thread, and raise its error or any interrupt."""
        assert self._lock is not None
        try:
            try:
                if not self._lock.acquire(ticket.deadline):
                    raise held_by_another(self.path, self._timeout_s)
                self._transaction([ticket])
            finally:
                self._lock.release()
        except STORE_ERRORS as error:
            raise translate(error, self.path) from error
        finally:
            self._lock.release()  # once more: an interrupt may have hit the first release

    def _patient(self, tickets: Sequence[StoreOperation], error: Exception) -> list[StoreOperation]:
        """Fail the tickets with the next deadline, or one close to it; return the others."""
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
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            if len(tickets) == 1:
                tickets[0].fail(translate(error, self.path))
            elif is_busy(error):
                self._write_locked(self._patient(tickets, translate(error, self.path)))
            else:
                for ticket in tickets:  # one is the cause, so each gets its own transaction
                    self._write_locked([ticket])

    def _transaction(self, tickets: Sequence[StoreOperation]) -> None:
        session = self._connections.writer
        with session.lock:
            writer, tables = self._ready(session)
            try:
                self._commit(writer, tables, tickets)
            except sqlite3.Error as error:
                if is_read_only(error):
                    session.close()  # a connection asks for the permission once: when it is opened
                raise
            if len(tickets) > 1:
                self.groups.count(len(tickets))
            self._log.written(len(tickets))
            if self._log.is_due():
                self._log.shorten(writer)
                self._busy_ms = -1

    def _commit(
        self, writer: sqlite3.Connection, tables: SqliteTables, tickets: Sequence[StoreOperation]
    ) -> None:
        try:
            if writer.in_transaction:  # an interrupt hit right after BEGIN
                writer.execute("ROLLBACK")
            self._set_busy_timeout(writer, min(ticket.deadline for ticket in tickets))
            writer.execute("BEGIN IMMEDIATE")
            tables.begin()
            clock = self._clock
            if clock is not None and clock.boot_ns() >= clock.reread_at_ns:
                keep_time(writer, clock)
            for ticket in tickets:
                ticket.run(tables)
            writer.execute("COMMIT")
        except BaseException as error:
            # After an interrupt behind the COMMIT the receipts are right, since it is committed.
            # After an error SQLite may already have rolled the transaction back.
            if writer.in_transaction or isinstance(error, sqlite3.Error):
                for ticket in tickets:
                    ticket.take_back()
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    def _set_busy_timeout(self, writer: sqlite3.Connection, deadline: float) -> None:
        """Wait no longer than the deadline for programs that use SQLite's lock but not ours."""
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        if abs(left_ms - self._busy_ms) > 10:
            writer.execute(f"PRAGMA busy_timeout = {left_ms}")
            self._busy_ms = left_ms

    # --- reading

    def lookup(self, ticket: StoreOperation) -> None:
        """Run a short read on a snapshot of the file."""
        try:
            with self._snapshot(self._connections.lookup) as tables:
                ticket.run(tables)
        except STORE_ERRORS as error:
            raise translate(error, self.path) from error

    def listing(self, ticket: StoreOperation) -> None:
        """Run a listing: a generator whose every step reads a page on a snapshot of its own.

        Each snapshot is short, because a read transaction keeps the write-ahead log from starting
        over. Only other listings wait for a listing. It sleeps between pages, so that other threads
        of this process get the interpreter at once.
        """
        steps = None
        try:
            while True:
                with self._snapshot(self._connections.listing) as tables:
                    steps = steps or ticket.function(tables, *ticket.args)
                    try:
                        next(steps)
                    except StopIteration as end:
                        ticket.receipt.outcome = end.value
                        return
                time.sleep(PAGE_PAUSE_S)
        except STORE_ERRORS as error:
            raise translate(error, self.path) from error

    @contextmanager
    def _snapshot(self, session: Session) -> Iterator[SqliteTables]:
        with session.lock:
            reader, tables = self._ready(session)
            if reader.in_transaction:  # an interrupt hit right after BEGIN
                reader.execute("ROLLBACK")
            reader.execute("BEGIN")
            try:
                tables.begin()
                yield tables
            finally:
                reader.execute("COMMIT")

    # --- opening

    def _open(self) -> None:
        connections = self._connections
        writer, _ = connections.connect(connections.writer)
        check_owner(writer, self.path)  # before our other files are created beside it
        self._lock = FileLock(self._file.path)
        try:
            if not self._lock.acquire(time.monotonic() + self._timeout_s):
                raise held_by_another(self.path, self._timeout_s)
            writer.execute("PRAGMA journal_mode = WAL")
            migrate(writer, self.path)
            if self._clock is not None:
                join_time(writer, self._clock)
        finally:
            self._lock.release()
        self._file.remember()
        connections.connect(connections.lookup)
        connections.connect(connections.listing)

    def _ready(self, session: Session) -> tuple[sqlite3.Connection, SqliteTables]:
        """Return an open connection to the file that was opened first."""
        if self._connections.fork_failed:
            raise InfrastructureError(
                f"{self.path!r} was in use while this process was forked; "
                "open the repository again, in each process"
            )
        self._file.check()
        if session.connection is None or session.tables is None:
            self._file.check(now=True)  # connecting would create a missing file
            self._busy_ms = -1
            return self._connections.connect(session)
        return session.connection, session.tables


class GroupCounts:
    """Counts of transactions that several callers shared; only the writing thread adds to them."""

    def __init__(self) -> None:
        self.groups = self.grouped = self.largest_group = 0

    def count(self, size: int) -> None:
        self.groups += 1
        self.grouped += size
        self.largest_group = max(self.largest_group, size)
