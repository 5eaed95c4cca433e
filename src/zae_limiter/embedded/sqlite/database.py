"""One SQLite file: a connection that writes in ordered batches and one that reads."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from zae_limiter.concurrency.worker import Ticket
from zae_limiter.embedded.sqlite.file_lock import FileLock
from zae_limiter.embedded.sqlite.schema import migrate
from zae_limiter.embedded.sqlite.tables import SqliteTables
from zae_limiter.exceptions import (
    InfrastructureNotFoundError,
    PermissionDenied,
    RateLimiterUnavailable,
    ValidationError,
)

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
CACHED_STATEMENTS = 128
_STORE_ERRORS = (sqlite3.Error, OSError)


class SqliteDatabase:
    """Not thread-safe: one caller writes at a time and one reads; the workers see to that."""

    def __init__(self, path: str, synchronous: str, timeout_s: float) -> None:
        if synchronous.upper() not in SYNCHRONOUS:
            raise ValidationError(
                "synchronous", synchronous, f"must be one of {', '.join(SYNCHRONOUS)}"
            )
        self.path = path
        self._timeout_s = timeout_s
        self._busy_ms = -1
        self._pid = os.getpid()
        _check_place(path)
        try:
            self._lock = FileLock(path)
            self._writer = self._connect(synchronous)
            self._prepare()
            self._reader = self._connect(synchronous)
        except _STORE_ERRORS as error:
            raise translate(error, path) from error
        self._write_tables = SqliteTables(self._writer)
        self._read_tables = SqliteTables(self._reader)

    def close(self) -> None:
        """Close both connections; the last one out folds the log into the file."""
        if os.getpid() == self._pid:
            self._reader.close()
            self._writer.close()
        self._lock.close()

    # --- writing

    def write(self, tickets: Sequence[Ticket]) -> None:
        """Run all tickets in one transaction, each as if alone. Never raises for a ticket."""
        waiting = list(tickets)
        while waiting and not self._lock.acquire(min(ticket.deadline for ticket in waiting)):
            now = time.monotonic()
            for ticket in waiting:
                if ticket.deadline <= now:
                    ticket.fail(self._held_by_another())
            waiting = [ticket for ticket in waiting if ticket.deadline > now]
        try:
            if waiting:
                self._write_locked(waiting)
        finally:
            self._lock.release()

    def write_one(self, ticket: Ticket) -> None:
        """Run one ticket in the caller's own thread; its error, and any interrupt, is raised."""
        self._check_process()
        try:
            try:
                if not self._lock.acquire(ticket.deadline):
                    raise self._held_by_another()
                self._transaction([ticket])
            finally:
                self._lock.release()
        except _STORE_ERRORS as error:
            raise translate(error, self.path) from error
        finally:
            self._lock.release()  # again, for an interrupt that struck inside the first one

    def _write_locked(self, tickets: Sequence[Ticket]) -> None:
        try:
            self._transaction(tickets)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            if len(tickets) == 1:
                tickets[0].fail(translate(error, self.path))
                return
            for ticket in tickets:  # one of them is at fault: let each stand for itself
                self._write_locked([ticket])

    def _transaction(self, tickets: Sequence[Ticket]) -> None:
        writer = self._writer
        try:
            if writer.in_transaction:  # an interrupt came right after a BEGIN
                writer.execute("ROLLBACK")
            self._set_busy_timeout(min(ticket.deadline for ticket in tickets))
            writer.execute("BEGIN IMMEDIATE")
            self._write_tables.begin()
            for ticket in tickets:
                ticket.run(self._write_tables)
            writer.execute("COMMIT")
        except BaseException as error:
            # An interrupt after the COMMIT leaves the receipts as they are: they stand. SQLite
            # itself may have rolled back on an error of its own.
            if writer.in_transaction or isinstance(error, sqlite3.Error):
                for ticket in tickets:
                    ticket.take_back()
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    def _held_by_another(self) -> RateLimiterUnavailable:
        return RateLimiterUnavailable(
            f"another process held {self.path!r} for more than {self._timeout_s:g} s; "
            "look for a stopped process, or raise request_timeout"
        )

    def _set_busy_timeout(self, deadline: float) -> None:
        """Programs that do not know our lock may hold SQLite's own; wait no longer in total."""
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        if abs(left_ms - self._busy_ms) > 50:
            self._writer.execute(f"PRAGMA busy_timeout = {left_ms}")
            self._busy_ms = left_ms

    # --- reading

    def read(self, tickets: Sequence[Ticket]) -> None:
        """Run each ticket on a consistent view of the file. Never raises for a ticket."""
        for ticket in tickets:
            try:
                self.read_one(ticket)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                ticket.fail(error)

    def read_one(self, ticket: Ticket) -> None:
        """Run one ticket on a consistent view of the file."""
        self._check_process()
        reader = self._reader
        try:
            if reader.in_transaction:  # an interrupt came right after a BEGIN
                reader.execute("ROLLBACK")
            reader.execute("BEGIN")
            try:
                self._read_tables.begin()
                ticket.run(self._read_tables)
            finally:
                reader.execute("COMMIT")
        except _STORE_ERRORS as error:
            raise translate(error, self.path) from error

    # --- opening

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
        )
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    def _prepare(self) -> None:
        try:
            if not self._lock.acquire(time.monotonic() + self._timeout_s):
                raise self._held_by_another()
            self._writer.execute("PRAGMA journal_mode = WAL")
            migrate(self._writer, self.path)
        finally:
            self._lock.release()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RateLimiterUnavailable(
                f"{self.path!r} was opened before a fork; open the repository in each process"
            )


def translate(error: Exception, path: str) -> Exception:
    """No sqlite3 error leaves this package bare."""
    if not isinstance(error, _STORE_ERRORS):
        return error
    denied = isinstance(error, PermissionError)
    if isinstance(error, sqlite3.OperationalError):
        denied = "readonly" in str(error) or "unable to open" in str(error)
    if denied:
        return PermissionDenied(
            f"cannot write {path!r}: {error}; check the permissions of the file and its folder",
            cause=error,
        )
    return RateLimiterUnavailable(f"SQLite file {path!r}: {error}", cause=error)


def _check_place(path: str) -> None:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InfrastructureNotFoundError(path, f"the folder {str(folder)!r} is missing; create it")
    if Path(path).is_dir():
        raise ValidationError("url", path, "is a folder; name a file")
