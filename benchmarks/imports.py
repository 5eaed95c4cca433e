"""The time of importing the library, on top of starting Python."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import NamedTuple

IMPORT = "from zae_limiter import RateLimiter, Repository, Limit"
HEAVY = ("botocore", "aiohttp")
REPORT = f"import sys; print(' '.join(m for m in {HEAVY!r} if m in sys.modules))"


class ImportRun(NamedTuple):
    """One start with the import and one without, side by side."""

    bare_ms: float
    with_import_ms: float

    @property
    def added_ms(self) -> float:
        return self.with_import_ms - self.bare_ms


def time_import() -> ImportRun:
    return ImportRun(_run_ms("pass"), _run_ms(IMPORT))


def heavy_modules() -> list[str]:
    """Return the large packages that the import has loaded."""
    found = subprocess.run(
        [sys.executable, "-c", f"{IMPORT}; {REPORT}"], check=True, capture_output=True, text=True
    )
    return found.stdout.split()


def _run_ms(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - started) * 1000
