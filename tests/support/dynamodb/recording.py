"""Which public method sends which request, noted by an event loop that tests run on.

The loop notes a request in the task that sends it: the stack of the running thread shows the public
method that waits for the answer. A task that a method creates inherits the name of the method.
Nothing is patched, and no thread looks at the stack of another one.

The recorder sees the async tree only; the sync tree is generated from it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import zae_limiter
import zae_limiter_ops
from tests.support.dynamodb.wire import Message
from tests.support.roles import ALL_METHODS

# Of one test: later requests repeat the earlier ones, and only the slow tests look at them.
MOST_REQUESTS = 10_000 if os.environ.get("ZAEL_RECORD_CALLS") else 50
# Where public methods are; an engine's own may have the same names, as the pause of a retry.
_LIBRARY = f"{Path(zae_limiter.__file__).parent}/_async/"
_PUBLIC = (_LIBRARY, f"{Path(zae_limiter_ops.__file__).parent}/_async/")
_ENGINES = f"{_LIBRARY}engines/"
_IN_BACKGROUND = ("later_writes.py", "resharding.py", "slots.py", "holds.py", "pending_ends.py")
# Classes whose blocks acquire; blocks of the other classes open and close a store.
_ACQUIRING = ("Acquire", "LlmReservation", "LlmStream")
_BLOCK_ENDS = {"__aenter__": "open", "__aexit__": "close"}
_ENTERING = "_enter"  # the coroutine that `__aenter__` of an acquire returns
_LOOP = asyncio.Handle._run.__code__  # noqa: SLF001 - where a task ends: the loop runs its step


class Recorded(NamedTuple):
    """A request, and the public method that has sent it; empty if the test itself has."""

    operation: str
    raw_body: bytes
    method: str


class Recorder:
    """Collects the first requests of a block."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []

    @property
    def is_full(self) -> bool:
        return len(self.requests) >= MOST_REQUESTS


_recorders: list[Recorder] = []
# The method that has created the running task; empty if a test has.
_creator: ContextVar[str] = ContextVar("_creator", default="")


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record the requests that tasks of a recording loop send."""
    recorder = Recorder()
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.remove(recorder)


class RecordingLoop(asyncio.SelectorEventLoop):
    """An event loop that shows recorders what the limiter's connections send."""

    async def create_connection(
        self, protocol_factory: Any, *args: Any, sock: Any = None, **options: Any
    ) -> Any:
        if sock is not None:  # the limiter connects its sockets itself
            sock = RecordedSocket(sock.family, sock.type, sock.proto, sock.detach())
            sock.setblocking(False)
        try:
            return await super().create_connection(protocol_factory, *args, sock=sock, **options)
        except BaseException:
            if sock is not None:
                sock.close()
            raise

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, context: Context | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        if context is None and _listening():
            context = copy_context()
            context.run(_creator.set, _method_of_sender())
        return super().create_task(coro, context=context, **options)

    def call_soon(
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Note who creates a task without the loop: the first step is asked for here."""
        task = getattr(callback, "__self__", None)
        if context is not None and isinstance(task, asyncio.Task) and _listening():
            coro: Any = task.get_coro()  # asyncio closes async generators by another awaitable
            begins = (
                inspect.iscoroutine(coro)
                and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED
            )
            if begins and not context.get(_creator):
                context.run(_creator.set, _method_of_sender())
        return super().call_soon(callback, *args, context=context)


class RecordedSocket(socket.socket):
    """A socket whose requests are noted. A transport sends a request in the task that writes it."""

    def send(self, data: Any, *flags: int) -> int:
        if listening := _listening():
            head, end, body = bytes(data).partition(b"\r\n\r\n")
            message = Message(head + end, body)
            if message.is_of_client and not message.operation.isupper():  # else no DynamoDB call
                recorded = Recorded(message.operation, body, _method_of_sender())
                for recorder in listening:
                    recorder.requests.append(recorded)
        return super().send(data, *flags)


def _listening() -> list[Recorder]:
    return [each for each in _recorders if not each.is_full]


def _method_of_sender() -> str:
    """Return the outermost public method on the stack of the running task.

    Without one, the method that has begun work in the background: that is an acquire, which waits
    neither for renewed slots nor for splits. Otherwise the method that has created the task.
    """
    method, is_background = "", False
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the own stack, without source lines
    while frame is not None and frame.f_code is not _LOOP:
        place = _place(frame.f_code)
        method = place.method or method
        is_background = is_background or place.is_background
        frame = frame.f_back
    if method:
        return method
    return "acquire" if is_background else _creator.get()


class _Place(NamedTuple):
    """What is known of code by its name and file."""

    method: str  # empty if it is no public method
    is_background: bool


@cache  # every request asks for the same few hundred
def _place(code: CodeType) -> _Place:
    file = code.co_filename
    is_public = file.startswith(_PUBLIC) and not file.startswith(_ENGINES)
    name = _public_name(code) if is_public else ""
    return _Place(name if name in ALL_METHODS else "", file.endswith(_IN_BACKGROUND))


def _public_name(code: CodeType) -> str:
    """Return the name of a method; the ends of an acquire's block are the acquire."""
    owner = code.co_qualname.partition(".")[0]
    if owner.endswith("Provisioner"):  # which a method of that name returns
        return "provisioner"
    if owner.endswith(_ACQUIRING) and code.co_name in {*_BLOCK_ENDS, _ENTERING}:
        return "acquire"
    if code.co_name == "open_repository":  # whichever of the ways to open it has called it
        return "build"
    if code.co_name in _BLOCK_ENDS:
        return _BLOCK_ENDS[code.co_name]
    return code.co_name
