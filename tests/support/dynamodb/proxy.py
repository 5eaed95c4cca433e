"""A proxy in a thread of its own: real sockets, so that clients are seen from outside."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.support.dynamodb.connection import Connection, Link
from tests.support.dynamodb.faults import Fault, Faults, Kind
from tests.support.dynamodb.seen import Exchange, Seen, operation_of
from tests.support.dynamodb.wire import Message

HOST = "127.0.0.1"
BACKLOG = 1024
TURNS = 5  # of the event loop, more than from an accepted connection to its handler


class Proxy:
    """Leads to ``endpoint``, and counts, delays or breaks what passes. Ends with the block.

    ``link`` is the line to the store; its fields may be set at any time: ``proxy.link.request_ms``
    and ``answer_ms`` (a 30 ms link has 15 each), ``jitter_ms``, ``date_offset_s``,
    ``answers_per_connection`` (the next request finds it closed), ``held_operation`` (its requests
    wait until another value is set), ``drip_ms`` (between the parts of an answer),
    ``slow_operation`` (the only one with ``answer_ms``), ``idle_s`` (the silence after which the
    network drops a connection).
    """

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self.link = Link(parts.hostname or HOST, parts.port or 80)
        self._faults = Faults()
        self._lock = threading.Lock()
        self._measuring: list[Seen] = []
        self._connections: set[Connection] = set()
        self._numbers = itertools.count(1)
        self._port = 0
        self._listener: asyncio.Server | None = None
        self._thread: threading.Thread | None = None

    # --- for tests

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def fault(
        self,
        kind: Kind,
        *,
        operation: str | None = None,
        times: int | None = None,
        skip: int = 0,
        when: Callable[[Exchange], bool] | None = None,
        delay_ms: float | None = 0,
        hold: bool = False,
        status: int | None = None,
        code: str | None = None,
    ) -> Fault:
        """Break requests from now on, until the fault's block or ``remove()`` ends it.

        Of all requests, or of one ``operation``, or those that ``when`` says; all of them, or
        ``times`` after the first ``skip``. ``late`` forwards after ``delay_ms``, or, if it is
        None, when a test sets the fault's ``delay_ms``; with ``hold`` the client's connection
        stays open meanwhile. ``status`` and ``code`` change the answer
        of those kinds that make one up. See ``faults.Kind``.
        """
        fault = Fault(
            kind, operation, times, skip, when, delay_ms, hold, status, code, on_remove=self._mend
        )
        self._faults.add(fault)
        return fault

    @contextmanager
    def measure(self) -> Iterator[Seen]:
        """All requests that arrive in the block, with what the store says they cost."""
        seen = Seen()
        with self._lock:
            self._measuring.append(seen)
        try:
            yield seen
        finally:
            with self._lock:
                self._measuring = [each for each in self._measuring if each is not seen]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """No server: connections are refused, and those that exist are closed."""
        self._in_loop(self._stop_listening)
        with socket.socket() as placeholder:  # keeps the port, does not listen
            placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            placeholder.bind((HOST, self._port))
            try:
                self.drop_connections()
                yield
            finally:
                placeholder.close()
                self._in_loop(self._listen)

    def drop_connections(self) -> None:
        """Close all connections, as a server does with idle ones."""
        self._in_loop(self._drop)

    # --- life

    def start(self) -> Proxy:
        """Return when it listens."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True, name="proxy")
        self._thread.start()
        if not ready.wait(10):
            raise RuntimeError("the proxy did not start")
        return self

    def stop(self) -> None:
        """Close everything; may be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # --- in the thread

    def _run(self, ready: threading.Event) -> None:
        asyncio.run(self._main(ready))

    async def _main(self, ready: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await self._listen()
        ready.set()
        await self._stopping.wait()
        await self._stop_listening()
        await asyncio.gather(*(each.closed() for each in tuple(self._connections)))

    async def _listen(self) -> None:
        listening = socket.create_server((HOST, self._port), backlog=BACKLOG)
        self._port = listening.getsockname()[1]
        self._listener = await asyncio.start_server(self._serve, sock=listening, backlog=BACKLOG)

    async def _stop_listening(self) -> None:
        """Accept nothing, then close: a connection accepted while asyncio closes stays open."""
        if self._listener is None:
            return
        for listening in self._listener.sockets:
            self._loop.remove_reader(listening.fileno())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._listener.close()

    async def _read_what_was_sent(self) -> None:
        for _ in range(2 * TURNS):
            await asyncio.sleep(0)

    async def _drop(self) -> None:
        await asyncio.gather(*(each.closed() for each in tuple(self._connections)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self.link, next(self._numbers), reader, writer)
        self._connections.add(connection)
        try:
            await connection.serve(self._arrived)
        except asyncio.CancelledError:
            pass  # the proxy is stopped
        finally:
            await connection.closed()
            self._connections.discard(connection)

    def _arrived(self, request: Message, connection: int) -> tuple[Exchange, Fault | None]:
        operation, body = request.operation, request.body
        exchange = Exchange(operation_of(operation, body), connection, body, time.monotonic())
        with self._lock:
            for seen in self._measuring:
                seen.requests.append(exchange)
        return exchange, self._faults.strike(exchange)

    def _mend(self, fault: Fault) -> None:
        """End a fault. What has been sent before, although nobody waits for it, still meets it."""
        if self._thread is not None:
            self._in_loop(self._read_what_was_sent)
        self._faults.remove(fault)
        if self._thread is not None:
            self._loop.call_soon_threadsafe(fault.over.set)

    def _in_loop(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(10)
