"""A caller that waits for a connection when the pool is closed gets none."""

import asyncio

import pytest

from tests.integration.transport.trees import request
from zae_limiter.store_errors import NoAnswer, NotSent
from zae_limiter.transport.aio import AHttp
from zae_limiter.transport.messages import MAX_CONNECTIONS

WAITING = 5


class Silent:
    """A server that reads and never answers; ``open`` are its connections."""

    def __init__(self):
        self.accepted = self.requests = 0
        self.open = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self.accepted += 1
        self.open.add(writer)
        try:
            while await reader.read(65_536):
                self.requests += 1
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.open.discard(writer)

    async def until(self, condition):
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - any connection may change it
                await asyncio.sleep(0.001)


@pytest.fixture
async def server():
    async with Silent() as server:
        yield server


def _sent(http, server, count):
    return [asyncio.ensure_future(http.send(*request(server.url), 5, 5)) for _ in range(count)]


async def _kinds(sends):
    return [type(each) for each in await asyncio.gather(*sends, return_exceptions=True)]


async def test_a_call_that_waits_for_room_when_the_pool_is_closed_does_not_connect(server):
    http = AHttp()
    first = _sent(http, server, MAX_CONNECTIONS)
    await server.until(lambda: server.requests == MAX_CONNECTIONS)
    waiting = _sent(http, server, WAITING)
    await asyncio.sleep(0)
    await http.close()
    assert await _kinds(first) == [NoAnswer] * MAX_CONNECTIONS
    assert await _kinds(waiting) == [NotSent] * WAITING
    await server.until(lambda: not server.open)
    assert server.accepted == MAX_CONNECTIONS


@pytest.mark.parametrize("turns", range(6))
async def test_a_call_that_is_connecting_when_the_pool_is_closed_keeps_nothing(server, turns):
    """The pool is closed after so many turns of the loop."""
    http = AHttp()
    sends = _sent(http, server, 3)
    for _ in range(turns):
        await asyncio.sleep(0)
    await http.close()
    assert set(await _kinds(sends)) <= {NoAnswer, NotSent}
    await asyncio.sleep(0.02)  # what was on its way has arrived
    await server.until(lambda: not server.open)


async def test_no_call_connects_after_the_pool_is_closed(server):
    http = AHttp()
    for _ in range(2):
        await http.close()
        assert await _kinds(_sent(http, server, 3)) == [NotSent] * 3
    assert server.accepted == 0
