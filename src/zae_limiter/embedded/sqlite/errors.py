"""The errors of a SQLite file, as errors of this package."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from zae_limiter.exceptions import (
    InfrastructureNotFoundError,
    PermissionDenied,
    RateLimiterUnavailable,
    ValidationError,
)

STORE_ERRORS = (sqlite3.Error, OSError)
COMPANIONS = ("-gate", "-lock", "-wal", "-shm")  # files of our lock, and SQLite's own
_REFUSED = (sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH)


def check_place(path: str) -> None:
    """Raise an error with advice if there can be no file of this name."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InfrastructureNotFoundError(path, f"the folder {str(folder)!r} is missing; create it")
    if Path(path).is_dir():
        raise ValidationError("url", path, "is a folder; name a file")
    for companion in (path + suffix for suffix in COMPANIONS):
        if Path(companion).is_dir():
            raise ValidationError(
                "url",
                path,
                f"needs a file {companion!r} beside it, but that is a folder; remove or rename the "
                "folder, or name another file",
            )


def held_by_another(path: str, timeout_s: float) -> RateLimiterUnavailable:
    """Return the error of a caller that did not get the file's lock in time."""
    return RateLimiterUnavailable(
        f"another process held {path!r} for more than {timeout_s:g} s; "
        "look for a stopped process, or raise request_timeout"
    )


def translate(error: Exception, path: str) -> Exception:
    """Return PermissionDenied or RateLimiterUnavailable for an error of the store."""
    if not isinstance(error, STORE_ERRORS):
        return error
    if _is_refusal(error, path):
        return PermissionDenied(
            f"cannot write {path!r}: {error}; check the permissions of the file and its folder",
            cause=error,
        )
    return RateLimiterUnavailable(f"SQLite file {path!r}: {error}", cause=error)


def is_busy(error: Exception) -> bool:
    """Return whether a program that does not use our file lock held SQLite's lock."""
    return _code(error) == sqlite3.SQLITE_BUSY


def is_read_only(error: Exception) -> bool:
    """Return whether a write met a connection that may only read."""
    return _code(error) == sqlite3.SQLITE_READONLY


def _code(error: Exception) -> int:
    """Return SQLite's error code without its extended part; 0 for other errors."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _is_refusal(error: Exception, path: str) -> bool:
    if isinstance(error, PermissionError):
        return True
    code = _code(error)
    if code == sqlite3.SQLITE_CANTOPEN:  # which also means that too many files are open
        place = path if Path(path).exists() else str(Path(path).absolute().parent)
        return not os.access(place, os.W_OK)
    return code in _REFUSED
