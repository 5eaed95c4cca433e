"""Interrupts at every point at which they can strike.

CPython runs signal handlers, and so raises KeyboardInterrupt, only when a function starts and when
a call into C returns (and at the end of each round of a loop, which adds nothing here). A profile
function is called at exactly these points, and its errors come out of the call as an interrupt
would. An error at every line would also strike where no signal can, such as between the last
statement of a ``with lock:`` block and the release of the lock. Points inside of ``threading``
count if the library called it, since an interrupt can strike inside of ``with condition:`` as well.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zae_limiter
import zae_limiter.testing
from zae_limiter.models.backend import BackendCapabilities

# One of so many points is tried: over a network a call has hundreds of them, each a second of
# work to set up and to check, and in a file a twentieth of that. Multiples of 3, so that the three
# blocks of a group, which begin at different points, try three times as many together.
MEMORY_STEP, FILE_STEP, NETWORK_STEP = 3, 9, 21
THOROUGH_NETWORK_STEP = 7
SAMPLED_OR_ALL = pytest.mark.parametrize(
    "thorough", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sampled", "all"]
)
LIBRARY = str(Path(zae_limiter.__file__).parent)
TESTING = str(Path(zae_limiter.testing.__file__).parent)
LEFT_OUT = (
    "__exit__",  # no context manager written in Python can catch what strikes that early
    "__del__",
)
# Python's own Condition fails here: its `with` would release a lock that is not held.
NEVER = ("_release_save", "_acquire_restore")


def positions(capabilities: BackendCapabilities, *, thorough: bool, part: int = 0) -> Iterator[int]:
    """Return one of three ``part``s of a sample of positions, spread as evenly as possible.

    A thorough test gets all positions, or a larger sample if every call goes over a network.
    """
    if thorough:
        return count(1, THOROUGH_NETWORK_STEP if capabilities.infrastructure else 1)
    embedded_step = FILE_STEP if capabilities.durable else MEMORY_STEP
    step = NETWORK_STEP if capabilities.infrastructure else embedded_step
    return count(1 + part * step // 3, step)


class InterruptAt:
    """A block in which the ``position``-th point of the library raises KeyboardInterrupt.

    ``on_strike`` is called just before the interrupt.
    """

    def __init__(self, position: int, on_strike: Callable[[], None] = lambda: None) -> None:
        self._left = position
        self._on_strike = on_strike
        self.struck: str | None = None  # where, once it has happened

    def __enter__(self) -> InterruptAt:
        sys.setprofile(self._at_point)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.disarm()

    def disarm(self) -> None:
        """Raise no more interrupts."""
        sys.setprofile(None)

    def _at_point(self, frame: FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "c_return") or not _counts(frame):
            return
        if event == "call" and frame.f_code.co_name in LEFT_OUT:
            return
        if frame.f_code.co_name in NEVER:
            return
        self._left -= 1
        if self._left == 0:
            sys.setprofile(None)
            self.struck = f"{event} {_path_to(frame)}"
            self._on_strike()
            raise KeyboardInterrupt


def _counts(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    return frame is not None and _is_ours(frame)


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(LIBRARY) and not file.startswith(TESTING)


def _path_to(frame: FrameType | None) -> str:
    """``database.py:93 _commit < database.py:73 write_one < ...``, the innermost first."""
    steps = []
    while frame is not None and _counts(frame):
        code = frame.f_code
        steps.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(steps[:4])
