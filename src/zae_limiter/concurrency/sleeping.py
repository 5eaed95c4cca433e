"""Sleep of threads."""

from __future__ import annotations

import time


def sleep(seconds: float) -> None:
    time.sleep(seconds)
