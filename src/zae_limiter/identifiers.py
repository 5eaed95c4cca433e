"""Ids of namespaces and audit events."""

from __future__ import annotations

import itertools
import secrets

_sequence = itertools.count(secrets.randbelow(1 << 20))  # 24 bits are shown: it may wrap


def new_namespace_id() -> str:
    """Return eleven random characters; no leading '-', which a shell would take for an option."""
    while (candidate := secrets.token_urlsafe(8)).startswith("-"):
        pass
    return candidate


def event_prefix(now_ms: int) -> str:
    """Return the beginning of the ids of a millisecond's events."""
    return f"{now_ms:012x}"


def new_event_id(now_ms: int) -> str:
    """Return an id that sorts by time, and within a millisecond by order of creation here."""
    return f"{event_prefix(now_ms)}-{next(_sequence) & 0xFFFFFF:06x}-{secrets.token_hex(3)}"
