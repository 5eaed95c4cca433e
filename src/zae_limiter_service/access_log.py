"""The access log: one JSON object per line. It contains routes, not ids of entities or leases."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from starlette.types import Scope

    from zae_limiter_service.answers import Answer

STDOUT = "-"


class AccessLog:
    """Writes a line for each request to a file, or to stdout for ``-``."""

    def __init__(self, place: str, worker: int) -> None:
        self._worker = worker
        self._stream: TextIO = sys.stdout
        if place != STDOUT:
            self._stream = Path(place).open("a", encoding="utf-8")  # noqa: SIM115 - by close()

    def write(
        self,
        scope: Scope,
        route: str,
        answer: Answer,
        caller: str | None,
        namespace: str | None,
        took_s: float,
    ) -> None:
        client = scope.get("client")
        self.line(
            transport="http",
            method=scope["method"],
            route=route,
            status=answer.status,
            ms=round(took_s * 1000, 3),
            caller=caller,
            namespace=namespace,
            remote=client[0] if client else None,
        )

    def line(self, **members: Any) -> None:
        """Write one line; lines of several workers do not mix, since each is one write."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        data = {"time": moment, "worker": self._worker, **members}
        self._stream.write(json.dumps(data) + "\n")
        self._stream.flush()

    def close(self) -> None:
        if self._stream is not sys.stdout:
            self._stream.close()
