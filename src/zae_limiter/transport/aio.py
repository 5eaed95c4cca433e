"""The transport of the async tree: a pool of plain connections per event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from typing import TypeVar

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.transport.aio_connection import Connection, connect, fail
from zae_limiter.transport.http1 import Malformed
from zae_limiter.transport.names import Names
from zae_limiter.transport.tls import Trust
from zae_limiter.transport.wire import (
    IDLE_S,
    MAX_CONNECTIONS,
    Endpoint,
    RawAnswer,
    Request,
    no_answer,
    no_connection,
)

T = TypeVar("T")


class AHttp:
    """Sends requests over connections that are kept; may be used from several event loops."""

    def __init__(self) -> None:
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._of_parent: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._names = Names()
        self._trust = Trust()
        self._closed = False
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Event loops do not survive a fork; their sockets are left to the parent, untouched."""
        self._lock = threading.Lock()
        self._of_parent, self._pools = self._pools, {}

    async def send(self, request: Request, timeout: float, connect_timeout: float) -> RawAnswer:
        """One exchange; raises NotSent or NoAnswer."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        pool = self._pools.get(loop)
        connection = None if pool is None else pool.take_kept()
        if pool is None or connection is None:
            try:
                pool = pool or await self._new_pool(loop)
                connection = await pool.take(request.endpoint, now + connect_timeout)
            except OSError as error:
                raise no_connection(request.endpoint, error) from error
        try:
            return await connection.send(request.message, now + timeout)
        except (OSError, Malformed) as error:
            raise no_answer(request.endpoint, error) from error
        finally:
            pool.give_back(connection)

    async def close(self) -> None:
        """Let go of all connections, also those of other event loops."""
        with self._lock:
            self._closed = True
            pools, self._pools = self._pools, {}
        here = asyncio.get_running_loop()
        for loop, pool in pools.items():
            if loop is here:
                await pool.close()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(pool.close(), loop)
            elif not loop.is_closed():
                pool.abort()

    async def _new_pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        with self._lock:
            if self._closed:
                raise OSError("the client is closed")
            for ended in [other for other in self._pools if other.is_closed()]:
                del self._pools[ended]
            pool = self._pools[loop] = Pool(self._names, self._trust)
        await pool.live_with_loop(lambda: self._forget(loop))
        return pool

    def _forget(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._pools.pop(loop, None)


class Pool:
    """The connections of one event loop; the one used last is used first."""

    def __init__(self, names: Names, trust: Trust) -> None:
        self._names = names
        self._trust = trust
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._in_use = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._keeper: AsyncGenerator[None, None] | None = None
        self._closed = False

    async def live_with_loop(self, forget: Callable[[], None]) -> None:
        """Event loops end their async generators before they end: that closes this pool."""
        self._keeper = self._until_closed(forget)
        await anext(self._keeper)

    async def close(self) -> None:
        """Drop every connection, also those in use."""
        if self._keeper is not None:
            await self._keeper.aclose()

    def abort(self) -> None:
        """Drop them when the event loop next runs."""
        for connection in list(self._all):
            connection.abort()

    async def _until_closed(self, forget: Callable[[], None]) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._closed = True
            forget()
            self.abort()
            for turn in self._queue:
                fail(turn, ConnectionError("the client was closed"))
            await asyncio.sleep(0)  # the loop lets go of the sockets one turn later

    def take_kept(self) -> Connection | None:
        """A connection that stands already, if there is one that nobody uses."""
        if not self._idle or self._in_use >= MAX_CONNECTIONS:
            return None
        kept = self._idle.pop()
        if not kept.is_usable(time.monotonic()):
            self._drop(kept)
            return None
        self._in_use += 1
        return kept

    async def take(self, endpoint: Endpoint, until: float) -> Connection:
        """A connection that stands; raises OSError if there is none in time."""
        await self._turn(until)
        kept = self._kept()
        if kept is not None:
            return kept
        connecting = asyncio.ensure_future(self._connected(endpoint, until))
        try:
            connection = await connecting
            if self._closed:
                raise ConnectionError("the client was closed")
            return connection
        except BaseException:
            if connecting.done() and not connecting.cancelled() and not connecting.exception():
                self._drop(connecting.result())  # it stands, but the caller was stopped
            self._leave()
            raise

    def give_back(self, connection: Connection) -> None:
        """Keep it, and drop the one that nobody has needed for longest if it is too old."""
        if self._queue:
            self._leave()
        else:
            self._in_use -= 1
        connection.waiter = None
        now = connection.idle_since = time.monotonic()
        if self._idle and now - self._idle[0].idle_since > IDLE_S:
            self._drop(self._idle.pop(0))
        if connection.may_keep and not self._closed:
            self._idle.append(connection)
        else:
            self._drop(connection)

    async def _turn(self, until: float) -> None:
        """Wait until there is room for one more; those who came first go first."""
        if self._in_use < MAX_CONNECTIONS:
            self._in_use += 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        timer = loop.call_at(until, fail, turn, TimeoutError())
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and not turn.exception():
                self._leave()  # it came just as the caller was stopped
            raise
        finally:
            timer.cancel()

    def _leave(self) -> None:
        """Hand the room on, or have more of it."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._in_use -= 1

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(time.monotonic()):
                return connection
            self._drop(connection)
        return None

    def _drop(self, connection: Connection) -> None:
        self._all.discard(connection)
        connection.abort()

    async def _connected(self, endpoint: Endpoint, until: float) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout_at(until):
            addresses = await aoutcome(self._names.addresses(endpoint), until - loop.time())
            sock = await connect(addresses, until)
            try:
                secure = endpoint.scheme == "https"
                _, connection = await loop.create_connection(
                    Connection,
                    sock=sock,
                    ssl=self._trust.context() if secure else None,
                    server_hostname=endpoint.host if secure else None,
                )
            except BaseException:
                sock.close()
                raise
        self._all.add(connection)
        return connection


async def asleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def aoutcome(future: Future[T], seconds: float) -> T:
    """The result of what another thread does; raises TimeoutError if it takes longer."""
    if future.done():
        return future.result()
    waiting = asyncio.wrap_future(future)
    try:
        await asyncio.wait([waiting], timeout=seconds)
        if not waiting.done():
            raise TimeoutError
        return waiting.result()
    finally:
        waiting.cancel()
