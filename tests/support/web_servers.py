"""Real servers for tests of web applications, and a client that can hang up."""

import asyncio
import json
import socket
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from wsgiref.simple_server import WSGIRequestHandler, make_server

import uvicorn


@asynccontextmanager
async def asgi_server(app):
    """Serve an ASGI application on this event loop; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", lifespan="auto", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.005)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        listener.close()


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def wsgi_server(app):
    """Serve a WSGI application in a thread; yields the port."""
    server = make_server("127.0.0.1", 0, app, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)


def request_bytes(path, headers, body):
    lines = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", "Host: test", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def parsed(data):
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = unchunked(body)
    return Reply(int(first.split()[1]), headers, body)


def unchunked(data):
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return body


async def fetch(port, path="/", headers=None, body=None):
    """Request a page and read the whole reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(path, headers, body))
    data = await reader.read()
    writer.close()
    await writer.wait_closed()
    return parsed(data)


async def hang_up(port, path="/", until=b"", headers=None, body=None):
    """Request a page, read up to some bytes of the reply, and close the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(path, headers, body))
    await reader.readuntil(until)
    writer.transport.abort()


def fetch_sync(port, path="/", headers=None, body=None):
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(request_bytes(path, headers, body))
        data = b""
        while piece := connection.recv(65_536):
            data += piece
    return parsed(data)


def hang_up_sync(port, path="/", until=b"", headers=None):
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(request_bytes(path, headers, None))
        data = b""
        while until not in data:
            data += connection.recv(65_536)
