"""Ids of namespaces and audit events, and the author of a change that names none."""

from __future__ import annotations

import itertools
import os

# `secrets` imports `random` and `hmac`: os.urandom is where it gets its bytes from.
_sequence = itertools.count(int.from_bytes(os.urandom(3)) >> 4)  # 24 bits are shown: it may wrap


def new_namespace_id() -> str:
    """Return eleven random characters; no leading '-', which a shell would take for an option."""
    from base64 import urlsafe_b64encode  # namespaces are rarely registered

    while (candidate := urlsafe_b64encode(os.urandom(8))).startswith(b"-"):
        pass
    return candidate.rstrip(b"=").decode()


def event_prefix(now_ms: int) -> str:
    """Return the beginning of the ids of a millisecond's events."""
    return f"{now_ms:012x}"


def new_event_id(now_ms: int) -> str:
    """Return an id that sorts by time, and within a millisecond by order of creation here."""
    return f"{event_prefix(now_ms)}-{next(_sequence) & 0xFFFFFF:06x}-{os.urandom(3).hex()}"


def process_author() -> str:
    """Return ``user@host`` of this process: the author of a change without a principal."""
    import getpass  # changes are rare, and functions name their principal
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container that runs as a number without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"
