"""No sqlite3 error leaves this package bare."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from zae_limiter.exceptions import PermissionDenied, RateLimiterUnavailable

STORE_ERRORS = (sqlite3.Error, OSError)
_REFUSED = (sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH)


def translate(error: Exception, path: str) -> Exception:
    """An outage, or a refusal; errors that are not the store's stay as they are."""
    if not isinstance(error, STORE_ERRORS):
        return error
    if _is_refusal(error, path):
        return PermissionDenied(
            f"cannot write {path!r}: {error}; check the permissions of the file and its folder",
            cause=error,
        )
    return RateLimiterUnavailable(f"SQLite file {path!r}: {error}", cause=error)


def is_busy(error: Exception) -> bool:
    """Whether a program that does not know our lock held SQLite's own all the time."""
    return _code(error) == sqlite3.SQLITE_BUSY


def _code(error: Exception) -> int:
    """SQLite's error code without the extended part; 0 for other errors."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _is_refusal(error: Exception, path: str) -> bool:
    if isinstance(error, PermissionError):
        return True
    code = _code(error)
    if code == sqlite3.SQLITE_CANTOPEN:  # also when there are too many open files
        place = path if Path(path).exists() else str(Path(path).absolute().parent)
        return not os.access(place, os.W_OK)
    return code in _REFUSED
