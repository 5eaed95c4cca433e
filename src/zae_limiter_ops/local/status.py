"""The current state of a server."""

from __future__ import annotations

from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from zae_limiter_ops.local import HOST, server_url
from zae_limiter_ops.local.records import ServerRecord

ANSWER_WITHIN_S = 2.0


def answer_ms(port: int, path: str) -> float | None:
    """Return the time in which the server answers over HTTP; None if it does not answer."""
    began = perf_counter()
    connection = HTTPConnection(HOST, port, timeout=ANSWER_WITHIN_S)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return round((perf_counter() - began) * 1000, 1) if status < 500 else None


class ServerStatus(NamedTuple):
    """The state of the server.

    ``state`` is "running", "not answering", "ended" (without ``down``) or "stopped". ``record`` is
    None if the server is stopped.
    """

    state: str
    record: ServerRecord | None = None
    answers_in_ms: float | None = None


def _iso(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return at.isoformat().replace("+00:00", "Z")


def describe(status: ServerStatus, log: Path) -> dict[str, Any]:
    """Return a status as JSON values."""
    record = status.record
    return {
        "state": status.state,
        "engine": record.engine if record else None,
        "version": record.version if record else None,
        "url": server_url(record.port) if record else None,
        "port": record.port if record else None,
        "pid": record.pid if record else None,
        "started_at": _iso(record.started_at_ms) if record else None,
        "answers_in_ms": status.answers_in_ms,
        "stacks": list(record.stacks) if record else [],
        "data": record.data if record else None,
        "log": str(log),
    }
