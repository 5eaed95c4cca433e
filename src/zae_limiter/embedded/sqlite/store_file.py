"""Checks that the file of a store is in place, and keeps its write-ahead log short."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.quiet_logging import quiet_logger

logger = quiet_logger(__name__)

CHECK_EVERY_S = 1.0  # looking at the file costs 2 µs, which is a lot for every acquire
MB = 1_000_000
# The log is shortened at a quarter of the limit, since it goes on growing until the checkpoint
# succeeds: other processes write before they look, and all write between two attempts.
SHORTEN_AT = 1 / 4
LOOK_EVERY = 128  # operations, which write at most a few MB
CHECKPOINT_WAIT_MS = 30  # a checkpoint waits this long for readers, and every acquire with it
# After a checkpoint that readers prevented, the next attempt waits this long.
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 5.0
WARN_EVERY_S = 60.0


class StoreFile:
    """Notices that the file was removed or replaced while it is open.

    Otherwise processes with the old file and processes with the new one would each admit as much
    as both together may.
    """

    def __init__(self, path: str) -> None:
        self._given = path
        self.path = os.path.abspath(path)  # noqa: PTH100 - does not follow links, as resolve() does
        self._identity: tuple[int, int] | None = None
        self._check_at = 0.0

    def remember(self) -> None:
        self._identity = self._found()

    def check(self, *, now: bool = False) -> None:
        """Raise an outage if another file, or none, has this name; looks once a second."""
        time_s = time.monotonic()
        if not now and time_s < self._check_at:
            return
        if self._identity != self._found():
            raise RateLimiterUnavailable(
                f"the SQLite file {self._given!r} was removed or replaced while it was open; "
                "move it back, or open the repository again (restart each process that uses it)"
            )
        self._check_at = time_s + CHECK_EVERY_S

    def _found(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path)  # noqa: PTH116 - half the time of Path.stat
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


class WriteAheadLog:
    """Keeps the log below its limit, whatever listings do.

    SQLite starts the log over only at a moment when no connection reads from it. If reads overlap,
    there is no such moment, and the log grows with every write. So the writing process waits for
    the reads in progress, each of which is short, and truncates the log.
    """

    def __init__(self, path: str, limit_mb: int) -> None:
        self.limit_bytes = limit_mb * MB
        self._path = f"{path}-wal"
        self._written = 0
        self._retry_s = 0.0
        self._not_before = 0.0
        self._warn_at = 0.0

    def written(self, operations: int) -> None:
        self._written += operations

    def is_due(self) -> bool:
        """Return whether the log must be shortened; looks every ``LOOK_EVERY`` operations."""
        if self._written < LOOK_EVERY:
            return False
        self._written = 0
        try:
            size = os.stat(self._path).st_size  # noqa: PTH116 - half the time of Path.stat
        except OSError:
            return False
        if size <= self.limit_bytes * SHORTEN_AT:
            return False
        now = time.monotonic()
        if size > self.limit_bytes and now >= self._warn_at:
            self._warn_at = now + WARN_EVERY_S
            logger.warning(
                "the write-ahead log %s has %d MB: another program has been reading the file for "
                "long; end it, or its transaction",
                Path(self._path).name,
                size // MB,
            )
        return now >= self._not_before

    def shorten(self, writer: sqlite3.Connection) -> None:
        """Copy the log into the database and truncate it, or try again later."""
        try:
            writer.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT_MS}")
            is_busy = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:  # the operation itself is committed
            logger.debug("checkpoint of %s: %s", self._path, error)
            is_busy = True
        now = time.monotonic()
        self._retry_s = min(LAST_RETRY_S, max(FIRST_RETRY_S, 2 * self._retry_s)) if is_busy else 0.0
        self._not_before = now + self._retry_s
