"""Ids of leases. An id names the host and the worker that hold the lease, and is a secret."""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

MAX_ID = 400  # characters
_ID = re.compile(r"([A-Za-z0-9_-]{1,300})\.([0-9]{1,4})\.([A-Za-z0-9_-]{16,64})")
_SECRET_BYTES = 16


class LeaseId(NamedTuple):
    """The parts of an id. ``host`` is the advertised URL, or a name where none is advertised."""

    host: str
    worker: int
    secret: str

    @property
    def owner_url(self) -> str | None:
        """The URL of the owner; None if it has not advertised one."""
        return self.host if self.host.startswith(("http://", "https://")) else None


def id_prefix(host: str, worker: int) -> str:
    """Return the beginning that all ids of a worker share."""
    return f"{urlsafe_b64encode(host.encode()).decode().rstrip('=')}.{worker}."


def new_secret() -> str:
    """Return the rest of an id, which nobody can guess."""
    return os.urandom(_SECRET_BYTES).hex()


def parse_lease_id(text: str) -> LeaseId | None:
    """Return the parts of an id; None if no service can have made it."""
    found = _ID.fullmatch(text) if len(text) <= MAX_ID else None
    if found is None:
        return None
    encoded, worker, secret = found.groups()
    try:
        host = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return None
    if not host.isascii() or not host.isprintable():
        return None
    return LeaseId(host, int(worker), secret)
