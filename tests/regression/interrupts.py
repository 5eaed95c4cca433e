"""Ctrl-C at every point at which it can strike.

CPython runs signal handlers when a function starts and when a call into C returns; a profile
function is called at just these points, and what it raises comes out like an interrupt. Points
inside ``threading`` count where our code called it: ``with condition:`` can be struck, too.
"""

import sys
import threading
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import zae_limiter

OURS = str(Path(zae_limiter.__file__).parent)
LEFT_OUT = (
    "__exit__",  # no context manager written in Python can catch what strikes on entering it
    "__del__",
)


class Interrupt:
    """Raises KeyboardInterrupt at the n-th point, counted from 0."""

    def __init__(self, position):
        self._left = position
        self.struck = None  # where, once it has happened
        self.on_strike = lambda: None

    def disarm(self):
        sys.setprofile(None)

    @contextmanager
    def armed(self):
        sys.setprofile(self._at_point)
        try:
            yield
        finally:
            self.disarm()

    def _at_point(self, frame, event, arg):
        if event not in ("call", "c_return") or not _counts(frame):
            return
        if event == "call" and frame.f_code.co_name in LEFT_OUT:
            return
        if self._left == 0:
            self.disarm()
            self.struck = f"{event} at {_path_to(frame)}"
            self.on_strike()
            raise KeyboardInterrupt
        self._left -= 1


def interrupts():
    """One for each point; to be left when one did not strike."""
    return (Interrupt(position) for position in count())


def _is_ours(frame):
    return frame.f_code.co_filename.startswith(OURS)


def _counts(frame):
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    return frame is not None and _is_ours(frame)


def _path_to(frame):
    steps = []
    while frame is not None and len(steps) < 5:
        code = frame.f_code
        steps.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(steps)
