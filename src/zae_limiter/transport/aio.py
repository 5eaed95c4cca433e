"""The transport of the async tree: a pool of connections per event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from typing import TypeVar

from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.transport.aio_connection import AioConnection, connect, fail, open_tunnel
from zae_limiter.transport.messages import (
    IDLE_S,
    MAX_CONNECTIONS,
    Destination,
    HttpResponse,
    no_answer,
    no_connection,
)
from zae_limiter.transport.response_reader import MalformedResponse
from zae_limiter.transport.sockets import Resolver, TrustStore

T = TypeVar("T")


class AHttp:
    """Sends requests over pooled connections; may be used from several event loops."""

    def __init__(self) -> None:
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._pools_of_parent: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._resolver = Resolver()
        self._trust = TrustStore()
        self._closed = False
        self.answered_s = 0.0  # when the last response came
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start without pools: event loops do not survive a fork, and sockets are the parent's.

        The old pools are kept, since collecting them would close sockets and selectors that the
        parent still uses.
        """
        self._pools_of_parent, self._pools = self._pools, {}

    async def send(
        self, destination: Destination, message: bytes, timeout: float, connect_timeout: float
    ) -> HttpResponse:
        """Send one request and return its response.

        Raises NotSent or NoAnswer, and PermissionDenied if a proxy refuses our credentials.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        pool = self._pools.get(loop)
        connection = None if pool is None else pool.take_idle(destination)
        if pool is None or connection is None:
            try:
                pool = pool or await self._new_pool(loop)
                connection = await pool.take(destination, now + connect_timeout)
            except (OSError, ValueError) as error:  # ValueError: a host that TLS cannot spell
                raise no_connection(destination, error) from error
        try:
            response = await connection.send(message, now + timeout)
        except (OSError, MalformedResponse) as error:
            was_idle = connection.is_reused_and_silent()
            raise no_answer(destination, error, was_idle=was_idle) from error
        finally:
            pool.give_back(connection)
        self.answered_s = connection.idle_since
        return response

    async def close(self) -> None:
        """Close all connections, also those of other event loops."""
        with self._lock:
            self._closed = True
            pools, self._pools = self._pools, {}
        running_loop = asyncio.get_running_loop()
        for loop, pool in pools.items():
            if loop is running_loop:
                await pool.close()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(pool.close(), loop)
            elif not loop.is_closed():
                pool.abort()

    async def _new_pool(self, loop: asyncio.AbstractEventLoop) -> ConnectionPool:
        with self._lock:
            if self._closed:
                raise OSError("the client is closed")
            for closed in [other for other in self._pools if other.is_closed()]:
                del self._pools[closed]
            pool = self._pools[loop] = ConnectionPool(self._resolver, self._trust)
        await pool.close_with_loop(lambda: self._drop_pool(loop))
        return pool

    def _drop_pool(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._pools.pop(loop, None)


class ConnectionPool:
    """The connections of one event loop; the one used last is used first.

    At most ``MAX_CONNECTIONS`` are in use; further callers queue for a permit.
    """

    def __init__(self, resolver: Resolver, trust: TrustStore) -> None:
        self._resolver = resolver
        self._trust = trust
        self._idle: list[AioConnection] = []
        self._all: set[AioConnection] = set()
        self._in_use = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closer: AsyncGenerator[None, None] | None = None
        self._closed = False

    async def close_with_loop(self, on_close: Callable[[], None]) -> None:
        """Close this pool when its event loop ends.

        An event loop closes its async generators before it ends; it has no other hook.
        """
        self._closer = self._close_at_end(on_close)
        await anext(self._closer)

    async def close(self) -> None:
        """Close every connection, also those in use."""
        if self._closer is not None:
            await self._closer.aclose()

    def abort(self) -> None:
        """Close every connection when the event loop next runs."""
        for connection in list(self._all):
            connection.abort()

    async def _close_at_end(self, on_close: Callable[[], None]) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._closed = True
            on_close()
            self.abort()
            for permit in self._queue:
                fail(permit, ConnectionError("the client was closed"))
            await asyncio.sleep(0)  # an aborted transport closes its socket one iteration later

    def take_idle(self, destination: Destination) -> AioConnection | None:
        """Return the connection that was used last if it can be used again."""
        if not self._idle or self._in_use >= MAX_CONNECTIONS:
            return None
        connection = self._idle.pop()
        if not connection.is_usable(destination, time.monotonic()):
            self._drop(connection)
            return None
        self._in_use += 1
        return connection

    async def take(self, destination: Destination, until: float) -> AioConnection:
        """Return an idle or new connection; raises OSError if there is none in time."""
        await self._wait_for_permit(until)
        idle = self._pop_idle(destination)
        if idle is not None:
            return idle
        connecting = asyncio.ensure_future(self._connect(destination, until))
        try:
            connection = await connecting
            if self._closed:
                raise ConnectionError("the client was closed")
            return connection
        except BaseException:
            if connecting.done() and not connecting.cancelled() and not connecting.exception():
                self._drop(connecting.result())  # open, but its caller was cancelled
            self._return_permit()
            raise

    def give_back(self, connection: AioConnection) -> None:
        """Keep the connection for reuse; drop the oldest idle connection if it is too old."""
        if self._queue:
            self._return_permit()
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

    async def _wait_for_permit(self, until: float) -> None:
        """Wait until one more connection may be in use, first come, first served."""
        if self._in_use < MAX_CONNECTIONS:
            self._in_use += 1
            return
        loop = asyncio.get_running_loop()
        permit: asyncio.Future[None] = loop.create_future()
        self._queue.append(permit)
        timer = loop.call_at(until, fail, permit, TimeoutError())
        try:
            await permit
        except BaseException:
            if permit.done() and not permit.cancelled() and not permit.exception():
                self._return_permit()  # the permit came just as the caller was cancelled
            raise
        finally:
            timer.cancel()

    def _return_permit(self) -> None:
        """Give the permit to the next caller in the queue, if there is one."""
        while self._queue:
            permit = self._queue.popleft()
            if not permit.done():
                permit.set_result(None)
                return
        self._in_use -= 1

    def _pop_idle(self, destination: Destination) -> AioConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(destination, time.monotonic()):
                return connection
            self._drop(connection)
        return None

    def _drop(self, connection: AioConnection) -> None:
        self._all.discard(connection)
        connection.abort()

    async def _connect(self, destination: Destination, until: float) -> AioConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout_at(until):
            lookup = self._resolver.addresses(*destination.first_hop)
            sock = await connect(await aoutcome(lookup, until - loop.time()), until)
            try:
                if destination.is_tunnelled:
                    await open_tunnel(sock, destination)
                is_tls = destination.is_tls
                _, connection = await loop.create_connection(
                    lambda: AioConnection(destination),
                    sock=sock,
                    ssl=self._trust.context(destination.ca_bundle) if is_tls else None,
                    server_hostname=destination.endpoint.tls_name if is_tls else None,
                )
            except BaseException:
                sock.close()
                raise
        self._all.add(connection)
        return connection


async def aoutcome(future: Future[T], seconds: float) -> T:
    """Wait for the result of another thread; raises TimeoutError after ``seconds``."""
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
