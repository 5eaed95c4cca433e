"""Both transports and both clients behind one face: a call that blocks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.client import DynamoClient as SyncDynamoClient
from zae_limiter.transport.access import find_destination
from zae_limiter.transport.aio import AHttp
from zae_limiter.transport.aws_config import AwsConfig
from zae_limiter.transport.messages import parse_endpoint
from zae_limiter.transport.threads import Http


def request(url, body=b"{}"):
    """Destination and message of an unsigned request."""
    destination = find_destination(parse_endpoint(url), AwsConfig())
    host = destination.endpoint.host_header
    head = f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    return destination, head.encode() + body


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self):
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._runner.run, args=(self._stop.wait(),))
        self._thread.start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def end(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._runner.close()


class AsyncTransport:
    def __init__(self):
        self._loop = LoopThread()
        self._http = AHttp()

    def send(self, url, body=b"{}", timeout=5.0, connect_timeout=2.0):
        return self._loop.run(self._http.send(*request(url, body), timeout, connect_timeout))

    def send_many(self, url, bodies, timeout=20.0):
        async def all_of_them():
            return await asyncio.gather(
                *(self._http.send(*request(url, body), timeout, timeout) for body in bodies)
            )

        return self._loop.run(all_of_them())

    def close(self):
        self._loop.run(self._http.close())
        self._loop.end()


class SyncTransport:
    def __init__(self):
        self._http = Http()

    def send(self, url, body=b"{}", timeout=5.0, connect_timeout=2.0):
        return self._http.send(*request(url, body), timeout, connect_timeout)

    def send_many(self, url, bodies, timeout=20.0):
        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(lambda body: self.send(url, body, timeout, timeout), bodies))

    def close(self):
        self._http.close()


class AsyncClient:
    def __init__(self, *args, **options):
        self.client = DynamoClient(*args, **options)  # first: it may refuse its options
        self._loop = LoopThread()
        self.table = self.client.table

    def call(self, operation, body, **options):
        return self._loop.run(self.client.call(operation, body, **options))

    def call_many(self, operation, bodies):
        async def all_of_them():
            return await asyncio.gather(
                *(self.client.call(operation, body) for body in bodies), return_exceptions=True
            )

        return self._loop.run(all_of_them())

    def finish(self):
        """Close the client but keep the loop."""
        self._loop.run(self.client.close())

    def close(self):
        self.finish()
        self._loop.end()


class SyncClient:
    def __init__(self, *args, **options):
        self.client = SyncDynamoClient(*args, **options)
        self.table = self.client.table

    def call(self, operation, body, **options):
        return self.client.call(operation, body, **options)

    def call_many(self, operation, bodies):
        def one(body):
            try:
                return self.call(operation, body)
            except Exception as error:  # noqa: BLE001 - like gather
                return error

        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(one, bodies))

    def finish(self):
        self.client.close()

    close = finish
