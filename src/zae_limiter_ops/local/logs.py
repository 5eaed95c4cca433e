"""Read the log of a server: its last lines, and lines as they are appended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

PAUSE_S = 0.1  # between two looks at the end of the file


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log; an empty list if there is no log."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        return _last_lines(file, count)
    return []


def follow(log: Path, count: int, is_running: Callable[[], bool]) -> Iterator[str]:
    """Yield the last lines, then all appended text until the server has ended."""
    while not log.exists() and is_running():
        time.sleep(PAUSE_S)
    with suppress(FileNotFoundError), log.open("rb") as file:
        yield from (f"{line}\n" for line in _last_lines(file, count))
        while True:
            runs = is_running()  # the read after the server's end still gets its last lines
            if text := file.read():
                yield text.decode(errors="replace")
            elif not runs:
                return
            else:
                time.sleep(PAUSE_S)


def _last_lines(file: IO[bytes], count: int) -> list[str]:
    lines = file.read().decode(errors="replace").splitlines()
    return lines[max(0, len(lines) - count) :]
