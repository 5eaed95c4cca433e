"""Ids that the store gives out."""

from __future__ import annotations

import itertools
import secrets

_sequence = itertools.count(secrets.randbelow(1 << 20))


def new_namespace_id() -> str:
    """Eleven opaque characters; never a leading '-', which a shell would read as an option."""
    while (candidate := secrets.token_urlsafe(8)).startswith("-"):
        pass
    return candidate


def event_prefix(now_ms: int) -> str:
    """The part of an event id that orders it in time."""
    return f"{now_ms:012x}"


def new_event_id(now_ms: int) -> str:
    """Sorts by time, and within a millisecond by order of creation in this process."""
    return f"{event_prefix(now_ms)}-{next(_sequence) & 0xFFFFFF:06x}-{secrets.token_hex(3)}"
