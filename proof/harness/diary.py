"""What a process writes down: each line at once, so that a killed process has told everything."""

from __future__ import annotations

import json
import os
import time
from itertools import count
from pathlib import Path
from typing import Any

now_ns = time.monotonic_ns


class Diary:
    """The lines of one process, appended to a file of its own."""

    def __init__(self, path: Path, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._numbers = count(1)
        self.process = process

    def tell(self, kind: str, **words: Any) -> None:
        record = {"kind": kind, "process": self.process, **words}
        os.write(self._file, (json.dumps(record, separators=(",", ":")) + "\n").encode())

    def begin(self, op: str, amounts: dict[str, int], of: int | None = None) -> int:
        """Note that an operation begins; returns its number."""
        number = next(self._numbers)
        more = {} if of is None else {"of": of}
        self.tell("begin", op=op, number=number, at=now_ns(), amounts=amounts, **more)
        return number

    def end(self, number: int, outcome: str) -> None:
        self.tell("end", number=number, at=now_ns(), outcome=outcome)

    def close(self) -> None:
        os.close(self._file)
