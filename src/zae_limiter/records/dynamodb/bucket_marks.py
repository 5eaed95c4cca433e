"""Marks that writes leave on a bucket: whose write was the last one, and when."""

from __future__ import annotations

import os

from zae_limiter.admission.image import HOUR_MS

_DELIMITER = "."


def new_mark(now_ms: int) -> str:
    """Of one write alone; from the system's chance, so that forked processes differ."""
    return f"{now_ms // 1000:x}{_DELIMITER}{os.urandom(4).hex()}"


def renewed(mark: str) -> str:
    """Of another write that is no use of the bucket: it keeps the time of the last one."""
    return f"{mark.partition(_DELIMITER)[0]}{_DELIMITER}{os.urandom(4).hex()}"


def hour_of(mark: str) -> int:
    """The hour of the write; 0 if the mark does not tell."""
    seconds, delimiter, _ = mark.partition(_DELIMITER)
    try:
        return int(seconds, 16) * 1000 // HOUR_MS if delimiter else 0
    except ValueError:
        return 0
