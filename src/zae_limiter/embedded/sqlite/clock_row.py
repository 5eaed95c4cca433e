"""The time that all processes of this machine share, as a row of the file.

The rules: docs/contributing/clocks.md.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import cache
from pathlib import Path

from zae_limiter.clock import SharedClock, SharedTime
from zae_limiter.clock.course import Course

_GET = (
    "SELECT settled_ns, offset_ns, since_ns, start_ns, divisor, next_since_ns, next_offset_ns "
    "FROM clock WHERE machine = ?"
)
_PUT = "INSERT OR REPLACE INTO clock VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


@cache
def boot_id() -> str:
    """Return an id that every boot changes; "" on systems without one."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def machine() -> str:
    """Return the key of the row. Processes with the same key have comparable boot clocks.

    A container may have a time namespace of its own, in which the boot clock is shifted.
    """
    time_namespace = 0
    with suppress(OSError):
        time_namespace = Path("/proc/self/ns/time").stat().st_ino
    return f"{boot_id()}/{time_namespace}"


def join_time(connection: sqlite3.Connection, clock: SharedClock) -> None:
    """Follow the stored time, or store the host's, when the file is opened.

    Rows of earlier boots are deleted.
    """
    key = machine()
    connection.execute("BEGIN IMMEDIATE")
    try:
        stored = _get(connection, key)
        shared = clock.first_time(stored, is_this_boot=bool(boot_id()))
        if shared is not stored:
            connection.execute("DELETE FROM clock WHERE machine NOT LIKE ? || '/%'", (boot_id(),))
            _put(connection, key, shared)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    clock.set(shared)


def keep_time(connection: sqlite3.Connection, clock: SharedClock) -> None:
    """Read the stored time again, inside a write transaction, and correct it if that is due.

    The clock follows a correction only after the next reading, since this transaction may be
    rolled back.
    """
    key = machine()
    stored = _get(connection, key)
    shared = clock.first_time(stored, is_this_boot=bool(boot_id()))
    clock.set(shared)
    corrected = clock.correction(shared)
    if shared is not stored or corrected is not None:
        _put(connection, key, corrected or shared)
        clock.reread_at_ns = 0


def _get(connection: sqlite3.Connection, key: str) -> SharedTime | None:
    row = connection.execute(_GET, (key,)).fetchone()
    return None if row is None else SharedTime(Course(*row[:5]), *row[5:])


def _put(connection: sqlite3.Connection, key: str, shared: SharedTime) -> None:
    values = (*shared.course, shared.next_since_ns, shared.next_offset_ns)
    connection.execute(_PUT, (key, *values))
