"""Writes log lines as JSON, and metrics in CloudWatch's embedded metric format, to the output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

METRICS_NAMESPACE = "zae-limiter"
METRIC_UNITS = {
    "Records": "Count",
    "Hours": "Count",
    "Archived": "Count",
    "Failures": "Count",
    "Skipped": "Count",
    "Lag": "Milliseconds",
}
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode

Output = Callable[[str], object]


class Log:
    """Writes one JSON object per line; CloudWatch indexes its fields."""

    def __init__(self, request_id: str = "", output: Output | None = None) -> None:
        self._request_id = request_id
        self._output = output or sys.stdout.write

    def info(self, message: str, **fields: object) -> None:
        self._write("INFO", message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._write("ERROR", message, fields)

    def metrics(self, values: Mapping[str, float], **dimensions: str) -> None:
        """Write values as metrics. CloudWatch extracts them from the log, without a call."""
        definition = {
            "Namespace": METRICS_NAMESPACE,
            "Dimensions": [list(dimensions)],
            "Metrics": [{"Name": name, "Unit": METRIC_UNITS[name]} for name in values],
        }
        root = {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [definition]}
        self._line({"_aws": root, **dimensions, **values})

    def _write(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        line: dict[str, Any] = {"level": level, "message": message}
        if self._request_id:
            line["request_id"] = self._request_id
        self._line({**line, **fields})

    def _line(self, content: Mapping[str, object]) -> None:
        self._output(_encode(content) + "\n")
