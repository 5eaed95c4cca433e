"""Which public methods send which requests, observed from outside: nothing is patched.

When a request arrives at a proxy of this process, its caller waits for the answer: the stacks of
threads and tasks show which public methods are under way. Work in the background, which only an
acquire starts, may be under way at the same time: it counts as an acquire.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import Any, NamedTuple
from weakref import WeakSet

import zae_limiter

# Of one test: what comes later repeats what came before, and is looked at by the slow tests only.
MOST_REQUESTS = 10_000 if os.environ.get("ZAEL_RECORD_CALLS") else 50
MOST_TASKS = 30  # of one event loop: a crowd does one thing
# Where public methods are; an engine's own may have the same names, as the pause of a retry.
_PUBLIC = tuple(f"{Path(zae_limiter.__file__).parent}/{tree}/" for tree in ("_async", "_sync"))
_ENGINES = tuple(f"{folder}engines/" for folder in _PUBLIC)
_TESTS = str(Path(__file__).parents[2])
_IN_BACKGROUND = ("later_writes.py", "resharding.py", "slots.py")
_NOBODY, _TEST = "", "a test"  # callers that are no public method
# Where what is suspended tells its code, and what it waits for.
_SUSPENDED: dict[type, tuple[str, str]] = {
    CoroutineType: ("cr_code", "cr_await"),
    GeneratorType: ("gi_code", "gi_yieldfrom"),
    AsyncGeneratorType: ("ag_code", "ag_await"),
}
# They hide what they hold: of `__await__` methods, and of the steps of asynchronous generators.
_WRAPPERS = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow")
_RUNS_LOOP = "BaseEventLoop.run_forever"
# Classes, of both trees, whose blocks acquire; those of the others open and close a store.
_ACQUIRING = ("Acquire", "LlmReservation", "LlmStream")
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
# A thread that runs on while its stack is looked at may hide its event loop for once.
_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


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
    """Return the outermost of these methods in each thread and task of this process.

    None of them where the test itself calls an engine: the request may be its own.
    """
    callers = {_caller(codes, methods) for codes in _stacks()}
    return frozenset() if _TEST in callers else frozenset(callers - {_NOBODY})


def _stacks() -> Iterator[list[CodeType]]:
    """Iterate over what runs in each thread and task, outermost first."""
    own = threading.get_ident()
    for thread, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other way
        if thread != own:
            codes, loop = _codes_of_thread(frame)
            yield codes
            if loop is not None:
                _loops.add(loop)
    for loop in [loop for loop in _loops if loop.is_running()]:
        yield from map(_codes_of_task, islice(asyncio.all_tasks(loop), MOST_TASKS))


def _codes_of_thread(frame: Any) -> tuple[list[CodeType], asyncio.AbstractEventLoop | None]:
    """Return what a thread runs, outermost first, and the event loop that it runs."""
    codes, loop = [], None
    while frame is not None:
        codes.append(frame.f_code)
        if frame.f_code.co_qualname == _RUNS_LOOP:
            loop = frame.f_locals.get("self")
        frame = frame.f_back
    return codes[::-1], loop


def _codes_of_task(task: asyncio.Task[Any]) -> list[CodeType]:
    codes: list[CodeType] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        if type(awaited).__name__ in _WRAPPERS:
            awaited = gc.get_referents(awaited)[0]
        code, inner = _SUSPENDED.get(type(awaited), ("", ""))
        if code:
            codes.append(getattr(awaited, code))
        awaited = getattr(awaited, inner, None)
    return codes


class _Place(NamedTuple):
    """What is known of code by where it is: its public name, if it is a method of a user's."""

    name: str | None
    is_engine: bool
    is_background: bool
    is_test: bool


@cache  # every request asks for the same few hundred
def _place(code: CodeType) -> _Place:
    file = code.co_filename
    is_engine = file.startswith(_ENGINES)
    name = _public_name(code) if file.startswith(_PUBLIC) and not is_engine else None
    return _Place(name, is_engine, file.endswith(_IN_BACKGROUND), file.startswith(_TESTS))


def _caller(codes: list[CodeType], methods: frozenset[str]) -> str:
    """Return the outermost of the methods; else that which has begun work in the background.

    That is an acquire, which does not wait for renewed slots and splits. Other threads and tasks of
    the package work for a method that waits for them. Last, an engine's code that the test calls
    without a public method between them.
    """
    places = [_place(code) for code in codes]
    for place in places:
        if place.name in methods:
            return place.name
    if any(place.is_background for place in places):
        return "acquire"
    calls_engine = any(place.is_engine for place in places)
    return _TEST if calls_engine and any(place.is_test for place in places) else _NOBODY


def _public_name(code: CodeType) -> str:
    """Return the name of a method; the ends of an acquire's block are the acquire."""
    owner = code.co_qualname.partition(".")[0]
    if owner.endswith("Provisioner"):  # which a method of that name returns
        return "provisioner"
    if code.co_name in _BLOCK_ENDS:
        return "acquire" if owner.endswith(_ACQUIRING) else _BLOCK_ENDS[code.co_name]
    return code.co_name
