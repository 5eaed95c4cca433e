"""The options in the URL of a SQLite file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zae_limiter.exceptions import ValidationError

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
WAL_LIMIT_MB = 64
MAX_WAL_LIMIT_MB = 10**6  # a larger number is a mistake of units


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The durability of writes, and the limit of the write-ahead log."""

    synchronous: str = "NORMAL"
    wal_limit_mb: int = WAL_LIMIT_MB

    @classmethod
    def of(cls, options: Mapping[str, str]) -> FileOptions:
        """Return the options of a URL; raises ValidationError for a wrong value."""
        return cls(
            _check_synchronous(options.get("synchronous", cls().synchronous)),
            _check_wal_limit(options.get("wal_limit_mb", str(WAL_LIMIT_MB))),
        )


def _check_synchronous(text: str) -> str:
    if text.upper() not in SYNCHRONOUS:
        raise ValidationError("synchronous", text, f"must be one of {', '.join(SYNCHRONOUS)}")
    return text


def _check_wal_limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_WAL_LIMIT_MB:
        raise ValidationError(
            "wal_limit_mb", text, f"must be a whole number from 1 to {MAX_WAL_LIMIT_MB}"
        )
    return int(text)
