"""Which public methods send which requests, observed from outside: nothing is patched.

When a request arrives at a proxy of this process, its caller waits for the answer: the stacks of
threads and tasks show which public methods are under way. Work in the background, which only an
acquire starts, may be under way at the same time: it counts as an acquire.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import zae_limiter

MOST_REQUESTS = 100  # of one test: what comes later repeats what came before
MOST_TASKS = 30  # of one event loop: a crowd does one thing
_PACKAGE = str(Path(zae_limiter.__file__).parent)
_IN_BACKGROUND = ("later_writes.py", "slots.py")
_RUNS_LOOP = asyncio.BaseEventLoop.run_forever.__code__
_BLOCK_ENDS = {"__aenter__": "open", "__enter__": "open", "__aexit__": "close", "__exit__": "close"}


class Recorded(NamedTuple):
    """A request, and the public methods that were under way when it arrived."""

    operation: str
    raw_body: bytes
    methods: frozenset[str]


class Recorder:
    """Collects the first requests of a block."""

    def __init__(self, methods: frozenset[str]) -> None:
        self._methods = methods
        self.requests: list[Recorded] = []

    def note(self, operation: str, raw_body: bytes) -> None:
        if len(self.requests) < MOST_REQUESTS:
            self.requests.append(Recorded(operation, raw_body, methods_under_way(self._methods)))


_recorders: list[Recorder] = []


@contextmanager
def recording(methods: frozenset[str]) -> Iterator[Recorder]:
    """Record what arrives at any proxy of this process; ``methods`` are those to tell apart."""
    recorder = Recorder(methods)
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.remove(recorder)


def note(operation: str, raw_body: bytes) -> None:
    """Take a request to the recorders of the moment; one to another service has no operation."""
    if operation.isupper():  # the method of HTTP
        return
    for recorder in tuple(_recorders):
        recorder.note(operation, raw_body)


def methods_under_way(methods: frozenset[str]) -> frozenset[str]:
    """Return the outermost of these methods in each thread and task of this process."""
    own = threading.get_ident()
    seen: set[str | None] = set()
    for thread, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other way
        if thread == own:
            continue
        codes, loop = _codes_of_thread(frame)
        seen.add(_outermost(codes, methods))
        if loop is not None:
            for task in islice(asyncio.all_tasks(loop), MOST_TASKS):
                seen.add(_outermost(_codes_of_task(task), methods))
    return frozenset(name for name in seen if name is not None)


def _codes_of_thread(frame: Any) -> tuple[list[CodeType], asyncio.AbstractEventLoop | None]:
    """Return what a thread runs, outermost first, and the event loop that it runs."""
    codes, loop = [], None
    while frame is not None:
        codes.append(frame.f_code)
        if frame.f_code is _RUNS_LOOP:
            loop = frame.f_locals.get("self")
        frame = frame.f_back
    return codes[::-1], loop


def _codes_of_task(task: asyncio.Task[Any]) -> list[CodeType]:
    codes: list[CodeType] = []
    awaited: Any = task.get_coro()
    while (code := getattr(awaited, "cr_code", None)) is not None:
        codes.append(code)
        awaited = getattr(awaited, "cr_await", None)
    return codes


def _outermost(codes: list[CodeType], methods: frozenset[str]) -> str | None:
    """Return the outermost method; else the acquire that has begun work in the background.

    Other threads and tasks of the package work for a method that waits for them.
    """
    in_background = False
    for code in codes:
        name, is_of_background = _place(code)
        if name in methods:
            return name
        in_background |= is_of_background
    return "acquire" if in_background else None


@cache  # every request asks for the same few hundred
def _place(code: CodeType) -> tuple[str | None, bool]:
    """Return the public name of code of the package, and whether it is later writes or slots."""
    file = code.co_filename
    name = _public_name(code) if file.startswith(_PACKAGE) else None
    return name, file.endswith(_IN_BACKGROUND)


def _public_name(code: CodeType) -> str:
    """Return the name of a method; the ends of an acquire's block are the acquire."""
    owner = code.co_qualname.partition(".")[0]
    if owner.endswith("Provisioner"):  # which a method of that name returns
        return "provisioner"
    if code.co_name in _BLOCK_ENDS:
        return "acquire" if owner.endswith("Acquire") else _BLOCK_ENDS[code.co_name]
    return code.co_name
